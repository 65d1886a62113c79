
// ---- The panel ----------------------------------------------------------------------------------------------------------------

// The id of the card that the panel was opened from. The card may be another element by the time the panel closes.
let openedFrom = null;
// The address that the page shows now. Only this script changes it, and the history with it.
let panelAddress = location.href;
function setAddress(address, change = "push") {
  history[`${change}State`](null, "", withFilter(address));
  panelAddress = location.href;
}

// What was written into a form of the panel is not thrown away without a question.
document.addEventListener("input", (event) => event.target.closest("#panel .form, .main form.form")?.setAttribute("data-is-written", ""));
const mayLeavePanel = () => !find("#panel [data-is-written]") || confirm(body.dataset.discard);

// The number of the last request for the panel. The answer to an earlier one changes nothing.
let panelRequest = 0;

// `change`: what becomes of the address, as the name of a method of the history without `State`. `from`: where the focus is to return.
// Returns whether it was opened.
async function openPanel(part, address, { change = "push", from = document.activeElement?.closest?.(".card, [data-panel]") } = {}) {
  if (!mayLeavePanel()) return false;
  if (from && !find("#panel").contains(from)) openedFrom = from.id;
  const isTab = Boolean(document.activeElement?.closest?.(".tabs"));
  const request = ++panelRequest;
  await htmx.ajax("GET", part, { source: "#panel", target: "#panel" });
  if (request !== panelRequest) return false;
  if (address) setAddress(address, change);
  const tab = isTab ? find("#panel .tabs [aria-current]") : null;
  // A phone would open its keyboard for the field.
  const say = matchMedia("(pointer: coarse)").matches ? null : find("#panel #say");
  (tab ?? say ?? find("#panel")).focus({ preventScroll: true });
  return true;
}

// An address of this board, with its filter.
function withFilter(address) {
  const url = new URL(address, location.href);
  putFilter(url.searchParams);
  return `${url.pathname}${url.search}`;
}

// The address of this page with nothing in the panel. What the page itself shows stays.
function withoutPanel() {
  const url = new URL(location.href);
  for (const name of ["task", "tab", "chat", "agent", "project"]) url.searchParams.delete(name);
  return `${url.pathname}${url.search}`;
}

function closePanel({ push = true } = {}) {
  panelRequest += 1;
  const panel = find("#panel");
  if (panel) htmx.trigger(panel, "htmx:abort");
  if (!panel?.hasChildNodes()) return;
  const task = find("[data-shows-task]", panel)?.dataset.showsTask;
  panel.replaceChildren();
  if (push) setAddress(withoutPanel());
  const card = document.getElementById(openedFrom) ?? document.getElementById(`card-${task}`);
  openedFrom = null;
  focusOn(card);
}

// A card has the focus by its link. What is on the screen stays where it is.
function focusOn(element) {
  (element?.matches(".card") ? find(".card-link", element) : element)?.focus({ preventScroll: true });
}

// Back and forward fill or empty the panel. The board stays, unless something else was searched for.
addEventListener("popstate", () => {
  // A link within the page changes only the part behind `#`.
  if (location.href.split("#")[0] === panelAddress.split("#")[0]) return;
  if (!find("#panel")) { location.reload(); return; }
  // A reader who stays in a written form keeps its address, too.
  if (!mayLeavePanel()) { history.pushState(null, "", panelAddress); return; }
  for (const form of findAll("#panel [data-is-written]")) form.removeAttribute("data-is-written");
  panelAddress = location.href;
  const query = new URLSearchParams(location.search);
  const filter = boardFilter();
  if (find("#find") && FILTERS.some((name) => (filter.get(name) ?? "") !== (query.get(name) ?? ""))) {
    for (const field of find("#find").elements) {
      if (field.type === "checkbox") field.checked = query.get(field.name) === field.value;
      else if (field.name) field.value = query.get(field.name) ?? "";
    }
    trigger("board");
  }
  const project = board()?.dataset.project;
  if (query.get("task")) openPanel(`${root}/ui/parts/tasks/${encodeURIComponent(query.get("task"))}?tab=${query.get("tab") ?? "overview"}`);
  else if (query.get("chat")) openPanel(`${root}/ui/parts/projects/${project}/agents/${encodeURIComponent(query.get("chat"))}/chat`);
  else if (query.get("agent") && query.get("project")) openPanel(`${root}/ui/parts/projects/${encodeURIComponent(query.get("project"))}/agents/${encodeURIComponent(query.get("agent"))}`);
  else closePanel({ push: false });
});

// A link to a part opens it in the panel, if this page has one. With a key, or by another button, it is a link.
document.addEventListener("click", (event) => {
  const link = event.target.closest("[data-panel]");
  if (link && find("#panel") && event.button === 0 && !event.ctrlKey && !event.metaKey && !event.shiftKey && !event.altKey) {
    event.preventDefault();
    const property = link.dataset.editsProperty;
    openPanel(link.dataset.panel, link.dataset.address).then((isOpen) => isOpen && property && openProperty(property));
  }
  if (event.target.closest("[data-close]") && mayLeavePanel()) closePanel();
  const copy = event.target.closest("[data-copy-link], [data-copy-text]");
  if (copy) copyText(copy.dataset.copyText ?? new URL(copy.dataset.copyLink, location.href).href);
  // A click on the title edits it, unless the reader selects a part of it.
  const edited = event.target.closest("[data-edits]") ?? (getSelection().isCollapsed && event.target.closest(".task .task-title"));
  if (edited) editInPlace(edited.closest(".edited"));
  const left = event.target.closest("[data-leave-edit]");
  if (left) leaveEdit(left.form);
  const asks = event.target.closest("[data-asks-reason]");
  if (asks) {
    const form = reasonForm(asks);
    form.hidden = !form.hidden;
    showAskingReason();
    if (!form.hidden) find("input[name=reason]", form).focus();
  }
  const choice = event.target.closest("[data-theme-choice]");
  if (choice) chooseTheme(choice.dataset.themeChoice);
});

const reasonForm = (button) => find(".why-blocked", button.closest(".stack-2"));
function showAskingReason() {
  for (const button of findAll("[data-asks-reason]")) button.setAttribute("aria-expanded", String(!reasonForm(button).hidden));
}

function leaveReason(form) {
  form.reset();
  form.hidden = true;
  showAskingReason();
  find(".states [data-sets=blocked]", form.closest(".stack-2")).focus();
}

// A form that stands behind the text that it changes, and takes its place.
function editInPlace(text) {
  const form = text.nextElementSibling;
  if (!form?.matches(".in-place")) return;
  // What changes elsewhere leaves what is being written.
  form.setAttribute("hx-morph-skip", "");
  form.hidden = false;
  text.hidden = true;
  const field = find("input:not([type=hidden]), textarea", form);
  field.focus();
  field.setSelectionRange(field.value.length, field.value.length);
}

function leaveEdit(form) {
  form.reset();
  form.removeAttribute("hx-morph-skip");
  form.removeAttribute("data-is-written");
  form.hidden = true;
  const text = form.previousElementSibling;
  text.hidden = false;
  find("[data-edits]", text).focus();
  // What came meanwhile.
  changedNote(form)?.remove();
  trigger("task");
}

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    toast(body.dataset.copied, { isBad: false });
  } catch {
    toast(text, { isBad: false });
  }
}

// Each block of code in a text has a button that copies it.
function addCopyButtons() {
  for (const code of findAll(".prose pre > code:only-child")) {
    code.after(makeButton("btn ghost small copy", body.dataset.copy, () => copyText(code.textContent)));
  }
}
addCopyButtons();

// Fits the page to the chat that it shows, and to what is in the panel now.
function showPanel() {
  const panel = find("#panel");
  const chat = chatOf();
  if (!panel && !chat) return;
  const name = chat?.dataset.chat ?? null;
  if (name !== live.chat) {
    live.chat = name;
    listen();
    if (chat && chat.dataset.mayChange === "true") post(pathOf(name, "do", "/start"), {});
  }
  if (chat) beginChat(chat);
  const heading = panel && find("#task-title, h2[id]", panel);
  if (heading) panel.setAttribute("aria-labelledby", heading.id);
  else panel?.removeAttribute("aria-labelledby");
  afterCards();
}

document.addEventListener("htmx:after:swap", () => {
  writeTimes();
  showStanding();
  showDrafts();
  showAskingReason();
  applyFolds();
  openFirstFile();
  addCopyButtons();
  if (find("#board .card")) endFirstRun();
  showNeeds();
});
new MutationObserver(showPanel).observe(find("#panel") ?? document.createElement("div"), { childList: true });

// The first of the changed files is open from the beginning. A reader may close it.
function openFirstFile() {
  const changes = find(".changes:not([data-is-begun])");
  const file = changes && find(".box", changes);
  if (!file) return;
  file.open = true;
  changes.dataset.isBegun = "";
}

// ---- The dialog ---------------------------------------------------------------------------------------------------------------

const dialog = find("#dialog");

// What the dialog shows gives it its name.
new MutationObserver((changes) => {
  const isFilled = changes.some(({ addedNodes: [shown] }) => shown && shown.id !== "toasts");
  const heading = find("h2", dialog);
  if (heading) dialog.setAttribute("aria-labelledby", heading.id);
  else dialog.removeAttribute("aria-labelledby");
  const form = find("form[data-draft]", dialog);
  if (isFilled && form) restoreTaskDraft(form);
  if (isFilled && !dialog.open) dialog.showModal();
  else if (changes.some(({ removedNodes: [gone] }) => gone?.className === "skeleton")) find("[autofocus]", dialog)?.focus();
}).observe(dialog, { childList: true });

function closeDialog({ isDone = false } = {}) {
  body.append(find("#toasts"));
  dialog.close();
  if (isDone) dialog.replaceChildren();
}
dialog.addEventListener("close", () => {
  body.append(find("#toasts"));
  dialog.asked?.request.abort?.();
  // A new task that is on its way may have to be sent again.
  if (!find("form[data-draft]", dialog)) dialog.replaceChildren();
});
document.addEventListener("click", (event) => {
  if (event.target === dialog || event.target.closest("[data-close-dialog]")) closeDialog();
  const draft = event.target.closest("[data-throw-away]")?.closest("form");
  if (draft) { forgetTaskDraft(draft); closeDialog({ isDone: true }); }
});

// ---- Questions ----------------------------------------------------------------------------------------------------------------

// What asks before it is done. The button that does it says what the pressed one said.
const sure = find("#sure");
// Returns whether the reader agrees.
function ask(question, yesText, yesLook = "danger") {
  const yes = find("[value=yes]", sure);
  find("#sure-text").textContent = question;
  yes.textContent = yesText;
  yes.className = `btn ${yesLook}`;
  sure.returnValue = "";
  return new Promise((resolve) => {
    sure.addEventListener("close", () => {
      body.append(find("#toasts"));
      resolve(sure.returnValue === "yes");
    }, { once: true });
    sure.showModal();
  });
}
document.addEventListener("htmx:confirm", async (event) => {
  const { ctx, issueRequest, dropRequest } = event.detail;
  const source = ctx.sourceElement;
  const pressed = ctx.request.submitter ?? (source.matches("form") ? find("button:not([type=button])", source) : source);
  event.preventDefault();
  const isSure = await ask(ctx.confirm, pressed.textContent.trim().replace(/…$/, ""), pressed.matches(".primary") ? "primary" : "danger");
  if (isSure) issueRequest();
  else dropRequest();
});

// Open subtasks keep a task from being done, unless the reader agrees that they are cancelled.
const isAboutSubtasks = (text) => problemIn(text).code === "subtasks_open";
const agreesToCancel = (text) => ask(`${problemIn(text).detail} · ${body.dataset.cancelThem}`, body.dataset.cancelAndFinish);

// ---- The draft of a new task --------------------------------------------------------------------------------------------------

// Each project has one, and so has each task that gets a part. It is kept until the task is made, or the reader discards it.
const taskDraftKey = (form) => `new-task-${root}/${form.dataset.draft}`;
const forgetTaskDraft = (form) => localStorage.removeItem(taskDraftKey(form));

// The id of a form that was sent is kept, too: if it arrived, the same form makes no second task.
const ID_LIFE = 20 * HOUR * 1000;
function keepTaskDraft(form, { sentAt = null } = {}) {
  if (sentAt) form.dataset.sentAt = sentAt;
  const fields = { ...Object.fromEntries(new FormData(form)), sentAt: Number(form.dataset.sentAt) };
  if (fields.title.trim() || fields.description.trim()) localStorage.setItem(taskDraftKey(form), JSON.stringify(fields));
  else forgetTaskDraft(form);
}
dialog.addEventListener("input", (event) => {
  const form = event.target.closest("form[data-draft]");
  if (form) keepTaskDraft(form);
});
dialog.addEventListener("submit", ({ target, submitter }) => {
  if (!target.matches("[data-draft]")) return;
  target.picked = submitter;
  keepTaskDraft(target, { sentAt: Date.now() });
});

function tellNewTask(id) {
  const run = () => (board() ? openPanel(`${root}/ui/parts/tasks/${id}`, `${root}/ui/projects/${board().dataset.project}?task=${id}`) : location.assign(`${root}/ui/tasks/${id}`));
  toast(`${body.dataset.created} ${id}`, { isBad: false, action: { text: body.dataset.open, run } });
}

// What the reader asked for with the button that opened the form counts, and not what the draft says.
function restoreTaskDraft(form) {
  const draft = JSON.parse(localStorage.getItem(taskDraftKey(form)) ?? "null");
  if (!draft) return;
  // An id lives for a day and belongs to one person.
  const isOld = !(Date.now() - draft.sentAt < ID_LIFE);
  if (!isOld) form.dataset.sentAt = draft.sentAt;
  for (const [name, value] of Object.entries(draft)) {
    if (name === "form_id" && isOld) continue;
    const field = form.elements[name];
    // An agent may have gone meanwhile.
    const isValid = field && (!field.options || [...field.options].some((option) => option.value === value));
    if (isValid && !("isAsked" in field.dataset)) field.value = value;
  }
  showWaitsFor(form);
  find("[data-draft-kept]", form).hidden = false;
}

// The tasks that a new one waits for are picked from a list that stays open.
function showWaitsFor(form) {
  const n = form.elements.dependencies.value.split(" ").filter(Boolean).length;
  const chip = find("[data-waits-for]", form);
  find("span", chip).textContent = n > 0 ? `${chip.dataset.waitsFor} ${n}` : chip.dataset.waitsFor;
  chip.classList.toggle("dashed", n === 0);
}
dialog.addEventListener("click", (event) => {
  const option = event.target.closest("[role=option]");
  if (!option) return;
  const form = option.closest("form");
  const field = find("[name=q]", option.closest(".pick"));
  form.elements.dependencies.value = option.value;
  showWaitsFor(form);
  keepTaskDraft(form);
  field.value = "";
  field.focus();
  htmx.trigger(field, "focus");
});

// ---- Archiving and deleting ---------------------------------------------------------------------------------------------------

document.addEventListener("submit", async (event) => {
  const form = event.target.closest?.("[data-removal]");
  if (!form) return;
  event.preventDefault();
  const deed = event.submitter?.value;
  if (!deed) return;
  const path = `${root}/ui/do/removals/${form.dataset.removal}`;
  event.submitter.disabled = true;
  const answer = await post(`${path}/${deed}`, new FormData(form));
  event.submitter.disabled = false;
  if (!answer?.ok) return;
  const told = form.dataset[deed];
  closeDialog({ isDone: true });
  // A task in the panel leaves the board as it is. Other pages were about the thing itself.
  if (find("#panel [data-shows-task]")) { closePanel(); toast(told, { isBad: false }); return; }
  sessionStorage.setItem("told", told);
  location.assign(form.dataset.back);
});

const toldBefore = sessionStorage.getItem("told");
sessionStorage.removeItem("told");
if (toldBefore) toast(toldBefore, { isBad: false });

// ---- Keys ---------------------------------------------------------------------------------------------------------------------

const isWriting = (element) => element?.matches?.("input:not([type=checkbox]), textarea, select, [contenteditable]");
const PLACES = { i: "inbox", b: "projects", a: "agents", l: "launches", o: "operations" };
let isGoing = false;

// The columns of the board that was shown last, as ids of tasks.
addEventListener("pagehide", () => {
  const columns = findAll("#board .cards").map((cards) => findAll(".card", cards).map((card) => card.dataset.task));
  if (columns.length > 0) sessionStorage.setItem("columns", JSON.stringify(columns));
});
// The next or the previous task of the column that the reader came from.
function taskBeside(task, step) {
  const columns = JSON.parse(sessionStorage.getItem("columns") ?? "[]");
  const column = columns.find((ids) => ids.includes(task)) ?? [];
  return column[column.indexOf(task) + step];
}
function stepToTask(task, step) {
  const next = taskBeside(task, step);
  if (next) location.assign(`${root}/ui/tasks/${encodeURIComponent(next)}`);
}
// A page that was opened otherwise has no buttons for it.
for (const button of findAll(".main > .task [data-step]")) button.hidden = !taskBeside(find(".main > .task").dataset.showsTask, Number(button.dataset.step));
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-step]");
  if (button) walk(Number(button.dataset.step));
});

function walk(step) {
  const task = find(".main > .task");
  if (task) { stepToTask(task.dataset.showsTask, step); return; }
  const link = document.activeElement?.closest?.(".card-link");
  const open = !link && find("#panel [data-shows-task]");
  const card = open && document.getElementById(`card-${open.dataset.showsTask}`);
  if (find(".walks")) stepInList(step);
  else if (card) stepInPanel(card, step);
  else if (link) stepInColumn(link, step);
  else find('.card-link[tabindex="0"]')?.focus();
}

// Opens the next card of the column. Back leads to the board, and not through all cards.
function stepInPanel(card, step) {
  const cards = findAll(".card", card.parentElement);
  const next = cards[cards.indexOf(card) + step];
  if (!next) return;
  next.scrollIntoView({ block: "nearest" });
  const { panel, address } = find(".card-link", next).dataset;
  const isInAddress = new URLSearchParams(location.search).has("task");
  openPanel(panel, address, { change: isInAddress ? "replace" : "push", from: next });
}

// The lines of a list whose names are links. From anywhere else, the walk begins at the line that is open, or at the first one.
const LINE = ".walks :is(tr, li)";
const listLineOf = (element) => element?.closest?.(LINE);
function stepInList(step) {
  const names = findAll(".walks .name");
  const line = listLineOf(document.activeElement) ?? find(`${LINE}.is-open`);
  const at = line ? names.indexOf(find(".name", line)) : -1;
  const next = at < 0 ? names[0] : names[at + step];
  // On a narrow screen the list gives way to the entry that is read.
  if (next && !next.checkVisibility()) location.assign(next.href);
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
}
document.addEventListener("keydown", (event) => {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!step || event.isComposing || event.ctrlKey || event.altKey || event.metaKey || !listLineOf(event.target)) return;
  stepInList(step);
  event.preventDefault();
});

// Each list has one Tab stop: the line that had the focus last, with its other controls.
let lastLine = null;
function setListStops() {
  for (const list of findAll(".walks")) {
    const lines = findAll("tr, li", list).filter((line) => find(".name", line));
    const stop = lines.find((line) => line.id === lastLine) ?? lines.find((line) => line.matches(".is-open")) ?? lines[0];
    for (const line of lines) for (const control of findAll("a, button", line)) control.tabIndex = line === stop ? 0 : -1;
  }
}
document.addEventListener("focusin", (event) => {
  const line = listLineOf(event.target);
  if (!line || line.id === lastLine) return;
  lastLine = line.id;
  setListStops();
});
document.addEventListener("htmx:after:swap", setListStops);
// An entry that is done or put off is gone, and the focus with it. The entry that follows gets it.
let markedAt = null;
document.addEventListener("htmx:before:request", ({ detail: { ctx } }) => {
  if (!ctx.sourceElement.matches?.(".reading [hx-post]")) return;
  const at = findAll(".walks .name").findIndex((name) => listLineOf(name).matches(".is-open"));
  markedAt = at < 0 ? null : at;
});
document.addEventListener("htmx:after:swap", () => {
  const names = findAll(".walks .name");
  if (markedAt === null || document.activeElement !== body || find(`${LINE}.is-open`)) return;
  (names[markedAt] ?? names.at(-1))?.focus();
  markedAt = null;
});
// The entry that its reader comes back from. An id of an element in the address would move the focus away again.
const cameFrom = document.getElementById(`item-${location.hash.split("#from-")[1]}`);
if (cameFrom) find(".name", cameFrom).focus();

// The board that was shown last. A key leads back to it.
if (board()) localStorage.setItem("board", location.pathname);
function goToPlace(place) {
  const last = localStorage.getItem("board");
  const isThere = findAll("#side a").some((link) => link.pathname === last);
  location.assign(place === "projects" && isThere ? last : `${root}/ui/${place}`);
}

// A key about a task is about the card with the focus, else about the task that is shown.
async function atTask(act) {
  const link = document.activeElement?.closest?.(".card-link");
  const isShown = link?.closest(".card").dataset.task === find("[data-shows-task]")?.dataset.showsTask;
  if (!link || isShown || await openPanel(link.dataset.panel, link.dataset.address)) act();
}

function openAsPage() {
  const link = document.activeElement?.closest?.(".card-link, .walks .name");
  if (link) location.assign(link.href);
  else find("[data-as-page]")?.click();
}

const KEYS = {
  "/": () => find("#search")?.focus(),
  n: () => find("[data-new-task]")?.click(),
  j: () => walk(1),
  k: () => walk(-1),
  o: openAsPage,
  s: () => atTask(() => find(".states [aria-pressed=true]")?.focus()),
  a: () => atTask(() => openProperty("assignee")),
  p: () => atTask(() => openProperty("priority")),
  c: () => atTask(() => find(".task [data-panel*='/chat'], .agent [data-chats]")?.click()),
  g: () => { isGoing = true; setTimeout(() => { isGoing = false; }, 1500); },
};

document.addEventListener("keydown", (event) => {
  if (event.isComposing || event.defaultPrevented) return;
  if (event.key === "Enter" && (event.metaKey || event.ctrlKey)) {
    event.target.closest?.("form:not([data-say], [data-removal], .property)")?.requestSubmit();
    return;
  }
  if (find("dialog[open]") || event.ctrlKey || event.altKey || event.metaKey) return;
  // A list or a menu that is open over the page has its own keys, and closes by itself.
  if (find(":popover-open")) return;
  if (event.key === "Escape") {
    const editing = event.target.closest?.(".in-place");
    const asks = event.target.closest?.(".why-blocked") && find("[data-asks-reason]");
    if (asks) { asks.click(); asks.focus(); }
    else if (editing) leaveEdit(editing);
    else if (event.target.id === "search") event.target.blur();
    else if (find("#panel")?.hasChildNodes()) { if (mayLeavePanel()) closePanel(); }
    else find("[data-up]")?.click();
    return;
  }
  if (isWriting(event.target) || localStorage.getItem("single-keys") === "off") return;
  const key = event.key.toLowerCase();
  if (isGoing && PLACES[key]) { goToPlace(PLACES[key]); event.preventDefault(); return; }
  if (key === "?") { htmx.ajax("GET", `${root}/ui/parts/keys`, { target: "#dialog" }); event.preventDefault(); return; }
  // Some keyboards have the slash on a key with Shift.
  if (!KEYS[key] || event.shiftKey && key !== "/") return;
  event.preventDefault();
  KEYS[key]();
});

const singleKeys = find("#single-keys");
if (singleKeys) {
  singleKeys.checked = localStorage.getItem("single-keys") !== "off";
  singleKeys.addEventListener("change", () => localStorage.setItem("single-keys", singleKeys.checked ? "on" : "off"));
}

function chooseTheme(theme) {
  if (theme) { localStorage.setItem("theme", theme); document.documentElement.dataset.theme = theme; }
  else { localStorage.removeItem("theme"); delete document.documentElement.dataset.theme; }
  showTheme();
}
function showTheme() {
  const chosen = localStorage.getItem("theme") ?? "";
  for (const button of findAll("[data-theme-choice]")) button.setAttribute("aria-pressed", String(button.dataset.themeChoice === chosen));
}
