
// ---- The beginning ------------------------------------------------------------------------------------------------------------

writeTimes();
showTheme();
applyFolds();
find(".col-tabs .is-on")?.scrollIntoView({ inline: "start", block: "nearest" });
setListStops();
showDrafts();
showPanel();
// A chat that is open has its stream already.
if (!live.source) listen();
