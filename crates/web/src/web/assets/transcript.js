
// ---- The transcript of a launch -----------------------------------------------------------------------------------------------

const MAX_ENTRIES = 5000;
const script = find("#transcript");
// The places in the output before and after what is shown.
const shown = { start: "", end: "" };
// A page without this control follows until the reader scrolls up.
const follow = find("#follow") ?? Object.assign(document.createElement("input"), { type: "checkbox", checked: true });
const newer = find("#new-entries");
// The entries that came while the reader was not at the end.
let nNewer = 0;
const isAtEnd = (box) => box.scrollHeight - box.scrollTop - box.clientHeight < 40;
const goToEnd = (box) => { box.scrollTop = box.scrollHeight; };
function showNewer(n) {
  nNewer = n;
  if (!newer) return;
  newer.hidden = n === 0;
  newer.textContent = newer.dataset.words.replace("{n}", n);
}

async function readTranscript(query) {
  const part = await fetchPart(`${script.dataset.source}?${query}`);
  if (part === null) return null;
  const holder = document.createElement("template");
  holder.innerHTML = part;
  return holder.content.firstElementChild;
}

// The time from a call to its result, if both have one; in tenths of a second if it is short.
function tookBetween(call, result) {
  const [from, to] = [call, result].map((tool) => Date.parse(find(".offset", tool.closest("li"))?.dateTime));
  if (!(to >= from)) return "";
  const tenths = Math.floor((to - from) / 100);
  return tenths < 100 ? `${Math.floor(tenths / 10)}.${tenths % 10}s` : duration(Math.floor((to - from) / 1000));
}

// A call and its result may come in different pages, or the call comes once more with its result.
function joinCalls() {
  for (const begun of findAll(".tool.is-begun:not([data-call=''])", script)) {
    const id = CSS.escape(begun.dataset.call);
    // Another run of the CLI may have counted a call alike.
    const isLater = (tool) => begun.compareDocumentPosition(tool) & Node.DOCUMENT_POSITION_FOLLOWING;
    const result = findAll(`[data-result-of="${id}"], [data-call="${id}"]:not(.is-begun)`, script).find(isLater);
    if (!result) continue;
    begun.classList.remove("is-begun");
    begun.classList.toggle("is-bad", result.matches(".is-bad"));
    begun.open ||= result.open;
    const end = find(".end", result);
    const became = result.matches(".is-bad") ? end.textContent : begun.dataset.edited || end.textContent;
    end.textContent = [became, ("resultOf" in result.dataset) && tookBetween(begun, result)].filter(Boolean).join(" · ");
    find(".end", begun).replaceWith(end);
    begun.append(...findAll(".got", result));
    const entry = result.closest("li");
    const { place } = entry.dataset;
    if (place && entry.nextElementSibling) entry.nextElementSibling.dataset.place ??= place;
    entry.remove();
  }
}

function addEntries(page, { isEarlier = false } = {}) {
  const box = script.parentElement;
  const before = box.scrollHeight;
  const entries = [...page.children];
  const place = isEarlier || !shown.end ? page.dataset.start : shown.end;
  if (entries.length > 0) entries[0].dataset.place = place;
  if (isEarlier || !shown.end) shown.start = place;
  if (!isEarlier && page.dataset.end) shown.end = page.dataset.end;
  script[isEarlier ? "prepend" : "append"](...entries);
  joinCalls();
  if (!isEarlier && follow.checked && script.children.length > MAX_ENTRIES) {
    // Whole pages go, so that "earlier" finds them again.
    do script.firstElementChild.remove();
    while (script.children.length > 1 && (script.children.length > 0.8 * MAX_ENTRIES || !script.firstElementChild.dataset.place));
    shown.start = script.firstElementChild.dataset.place ?? shown.start;
  }
  writeTimes();
  addCopyButtons();
  find("#earlier-entries").hidden = !shown.start;
  // Earlier calls may not be here.
  const nCalls = findAll(".tool", script).length;
  find("#tool-calls")?.replaceChildren(`${nCalls}${shown.start ? "+" : ""}`);
  if (expand) expand.hidden = nCalls === 0 || !script.checkVisibility();
  if (isEarlier) box.scrollTop += box.scrollHeight - before;
  else if (entries.length === 0) return; // Nor is a reader pulled back who is scrolling up.
  else if (follow.checked) goToEnd(box);
  else showNewer(nNewer + entries.length);
}

async function followTranscript() {
  for (;;) {
    let isMore = false;
    let isRefused = false;
    if (!document.hidden) {
      const isOver = find("#launch [data-state=ended]") !== null;
      const page = await readTranscript(shown.end && `after=${shown.end}`);
      if (page) addEntries(page);
      isRefused = page === null;
      isMore = page?.children.length > 0 && Boolean(shown.end);
      if (page && ((isOver && !isMore) || "isAll" in page.dataset)) {
        for (const call of findAll(".is-begun", script)) {
          call.classList.remove("is-begun");
          find(".end", call).textContent = "";
        }
        follow.closest("label")?.setAttribute("hidden", "");
        return;
      }
    }
    await new Promise((go) => setTimeout(go, isRefused ? 5000 : isMore ? 300 : 1000));
  }
}

find("#earlier-entries")?.addEventListener("click", async (event) => {
  const button = event.currentTarget;
  button.disabled = true;
  const page = await readTranscript(`before=${shown.start}`);
  button.disabled = false;
  if (page) addEntries(page, { isEarlier: true });
});
newer?.addEventListener("click", () => { follow.checked = true; goToEnd(script.parentElement); });
follow.addEventListener("change", () => {
  if (follow.checked) for (const box of [script.parentElement, find("#output")]) goToEnd(box);
});

// A reader who scrolls up is left there. One who is back at the end follows again.
let lastTop = 0;
find("#transcript-box")?.addEventListener("scroll", ({ target }) => {
  if (isAtEnd(target)) { follow.checked = true; showNewer(0); }
  else if (target.scrollTop < lastTop) follow.checked = false;
  lastTop = target.scrollTop;
});

const expand = find("#expand-tools");
expand?.addEventListener("click", () => {
  const isOpen = expand.getAttribute("aria-pressed") !== "true";
  for (const tool of findAll(".tool", script)) tool.open = isOpen;
  expand.setAttribute("aria-pressed", String(isOpen));
  [expand.textContent, expand.dataset.other] = [expand.dataset.other, expand.textContent];
  if (follow.checked) goToEnd(script.parentElement);
});

// The raw output is fetched when it is wanted.
for (const button of findAll("[data-view]")) {
  button.addEventListener("click", () => {
    for (const other of findAll("[data-view]")) {
      other.setAttribute("aria-pressed", String(other === button));
      document.getElementById(other.dataset.view).hidden = other !== button;
    }
    expand.hidden = !find(".tool", script) || !script.checkVisibility();
    const output = find("#output");
    if (output.checkVisibility() && !("isRead" in output.dataset)) {
      output.dataset.isRead = "";
      followOutput(output);
    }
  });
}
