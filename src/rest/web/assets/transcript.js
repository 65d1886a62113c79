
// ---- The transcript of a launch -----------------------------------------------------------------------------------------------

const MAX_ENTRIES = 5000;
const script = find("#transcript");
// The places in the output before and after what is shown.
const shown = { start: "", end: "" };

async function readTranscript(query) {
  const part = await fetchPart(`${script.dataset.source}?${query}`);
  if (part === null) return null;
  const holder = document.createElement("template");
  holder.innerHTML = part;
  return holder.content.firstElementChild;
}

// A call and its result may come in different pages, or the call comes once more with its result.
function joinCalls() {
  for (const begun of findAll(".tool.is-begun:not([data-call=''])", script)) {
    const id = CSS.escape(begun.dataset.call);
    const result = find(`[data-result-of="${id}"]`, script) ?? find(`[data-call="${id}"]:not(.is-begun)`, script);
    if (!result) continue;
    begun.classList.remove("is-begun");
    begun.classList.toggle("is-bad", result.matches(".is-bad"));
    begun.open ||= result.open;
    find(".end", begun).replaceWith(find(".end", result));
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
  const isAtEnd = before - box.scrollTop - box.clientHeight < 40;
  const entries = [...page.children];
  const place = isEarlier || !shown.end ? page.dataset.start : shown.end;
  if (entries.length > 0) entries[0].dataset.place = place;
  if (isEarlier || !shown.end) shown.start = place;
  if (!isEarlier && page.dataset.end) shown.end = page.dataset.end;
  script[isEarlier ? "prepend" : "append"](...entries);
  joinCalls();
  if (!isEarlier && isAtEnd && script.children.length > MAX_ENTRIES) {
    // Whole pages go, so that "earlier" finds them again.
    do script.firstElementChild.remove();
    while (script.children.length > 1 && (script.children.length > 0.8 * MAX_ENTRIES || !script.firstElementChild.dataset.place));
    shown.start = script.firstElementChild.dataset.place ?? shown.start;
  }
  writeTimes();
  find("#earlier-entries").hidden = !shown.start;
  if (isEarlier) box.scrollTop += box.scrollHeight - before;
  else if (isAtEnd) box.scrollTop = box.scrollHeight;
  else if (entries.length > 0) find("#new-entries").hidden = false;
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
        for (const end of findAll(".is-begun .end", script)) end.textContent = "";
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
find("#new-entries")?.addEventListener("click", () => { script.parentElement.scrollTop = script.parentElement.scrollHeight; });
find("#transcript-box")?.addEventListener("scroll", ({ target }) => {
  if (target.scrollHeight - target.scrollTop - target.clientHeight < 40) find("#new-entries").hidden = true;
});
