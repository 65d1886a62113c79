
// ---- The filters of lists -------------------------------------------------------------------------------------------------------

// The address names the filters that are set.
document.addEventListener("input", (event) => {
  const form = event.target.closest?.("[data-keeps-address]");
  if (!form) return;
  const set = [...new FormData(form)].filter(([, value]) => value.trim());
  setAddress(`${location.pathname}?${new URLSearchParams(set)}`, "replace");
});
