
// ---- The beginning ------------------------------------------------------------------------------------------------------------

writeTimes();
showTheme();
applyFolds();
setListStops();
showPanel();
listen();
