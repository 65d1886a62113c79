
// ---- The palette --------------------------------------------------------------------------------------------------------------

const palette = find("#palette");
const paletteText = find("#palette-q");

function markFound(option) {
  for (const other of findAll("#found [role=option]")) other.setAttribute("aria-selected", String(other === option));
  if (option) paletteText.setAttribute("aria-activedescendant", option.id);
  else paletteText.removeAttribute("aria-activedescendant");
  option?.scrollIntoView({ block: "nearest" });
}

// The newest text counts, in any order of the answers. Until its answer is there, the list is that of an older text.
let lastSearch = 0;
let isBehind = false;
async function fillPalette() {
  const search = ++lastSearch;
  const query = new URLSearchParams({ q: paletteText.value });
  if (board()) query.set("project", board().dataset.project);
  const part = await fetchPart(`${root}/ui/parts/palette?${query}`);
  if (part === null || search !== lastSearch) return;
  isBehind = false;
  find("#found").innerHTML = part;
  // A command presses a control of this page. Without the control the page does not offer it.
  for (const option of findAll("#found [data-press]")) {
    const control = find(option.dataset.press);
    if (!control || (isWriting(control) && !control.checkVisibility())) option.remove();
  }
  for (const group of findAll("#found [role=group]")) if (!find("[role=option]", group)) group.remove();
  const options = findAll("#found [role=option]");
  find("#no-found").hidden = options.length > 0;
  find("#n-found").textContent = options.length || find("#no-found").textContent;
  markFound(options[0]);
}

function openPalette() {
  if (!palette || dialog.open) return;
  if (palette.open) { palette.close(); return; }
  paletteText.value = "";
  palette.showModal();
  fillPalette();
}

// Closing gives the focus back, so that what comes next begins there.
function pickFound(option) {
  palette.close();
  const { href, part, project, press } = option.dataset;
  const control = press && find(press);
  if (control) (isWriting(control) ? control.focus() : control.click());
  else if (part && board()?.dataset.project === project) openPanel(part, href);
  else if (href) location.assign(href);
}

let searchTimer = null;
palette?.addEventListener("input", () => {
  isBehind = true;
  clearTimeout(searchTimer);
  searchTimer = setTimeout(fillPalette, 100);
});
palette?.addEventListener("close", () => {
  // The event comes late: the palette may be open again.
  if (palette.open) return;
  lastSearch++;
  clearTimeout(searchTimer);
  find("#found").replaceChildren();
  markFound(null);
});
palette?.addEventListener("keydown", async (event) => {
  const step = { ArrowDown: 1, ArrowUp: -1, Enter: 0 }[event.key];
  if (event.isComposing || step === undefined) return;
  event.preventDefault();
  if (step === 0 && isBehind) await fillPalette();
  const options = findAll("#found [role=option]");
  const at = options.findIndex((option) => option.getAttribute("aria-selected") === "true");
  if (!palette.open || options.length === 0) return;
  if (step === 0) pickFound(options[at]);
  else markFound(options[(at + step + options.length) % options.length]);
});
document.addEventListener("keydown", (event) => {
  if (event.isComposing || event.altKey || event.shiftKey || !(event.ctrlKey || event.metaKey)) return;
  if (event.key.toLowerCase() !== "k" || !palette) return;
  event.preventDefault();
  openPalette();
});
document.addEventListener("click", (event) => {
  const option = event.target.closest("#found [role=option]");
  if (option) pickFound(option);
  else if (event.target === palette) palette.close();
  else if (event.target.closest("[data-open-palette]")) openPalette();
});
