
// ---- The beginning ------------------------------------------------------------------------------------------------------------

writeTimes();
showTheme();
applyFolds();
setListStops();
showDrafts();
showPanel();
// A chat that is open has its stream already.
if (!live.source) listen();
