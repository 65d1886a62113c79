
// ---- The board ----------------------------------------------------------------------------------------------------------------

const board = () => find("#board");

// Fetches the cards of changed tasks and puts each where it belongs.
let isShowingTasks = false;
async function showChangedTasks(all) {
  // One at a time: an older answer must not come after a newer one.
  if (isShowingTasks) { setTimeout(() => showChangedTasks(all), 50); return; }
  isShowingTasks = true;
  try { await showTasks(all); } finally { isShowingTasks = false; }
}

async function showTasks(all) {
  const ids = [...live.tasks];
  live.tasks.clear();
  const shown = find("[data-shows-task]");
  if (shown) trigger("task");
  if (!board()) return;
  if (all || ids.length > 50) { trigger("board"); return; }
  if (ids.length === 0) return;
  const query = new URLSearchParams({ ids: ids.join(",") });
  putFilter(query);
  const asked = String(query);
  const answer = await fetchPart(`${root}/ui/parts/projects/${board().dataset.project}/cards?${asked}`);
  putFilter(query);
  // The reader changed the filter meanwhile. The board is read anew for it.
  if (String(query) !== asked) return;
  if (answer === null) { ids.forEach((id) => live.tasks.add(id)); return; }
  const holder = document.createElement("div");
  holder.innerHTML = answer;
  const changed = find("#changed", holder);
  const cards = findAll(".card", changed.content);
  if (cards.length > 0) endFirstRun();
  // A task without a card was archived or deleted, or does not match the filter.
  const withCards = new Set(cards.map((card) => card.dataset.task));
  for (const id of ids) if (!withCards.has(id)) document.getElementById(`card-${id}`)?.remove();
  for (const card of cards) place(card);
  const counts = Object.entries(JSON.parse(changed.dataset.counts));
  for (const [status, count] of counts) {
    for (const shown of findAll(`[data-count-of="${status}"]`)) shown.textContent = count < 10000 ? count : `${Math.round(count / 1000)}k`;
  }
  find("#n-needing-person").value = changed.dataset.nNeedingPerson;
  find("#n-to-merge").value = changed.dataset.nToMerge;
  showNeeds();
  // Only the whole board says that nothing is found.
  const isNothing = boardFilter().size > 0 && counts.every(([, count]) => count === 0);
  if (isNothing !== Boolean(find("#nothing-found"))) trigger("board");
  afterCards();
}

// The first task replaces what an empty project shows.
function endFirstRun() {
  findAll("#no-tasks, #steps").forEach((part) => part.remove());
  for (const part of findAll("#board, .col-tabs")) part.hidden = false;
}

// The numbers of tasks that need a person, and of results to merge, at the filters for them.
function showNeeds() {
  for (const { value, dataset } of findAll("data[data-counts]")) {
    const count = find(`[data-count-of="${dataset.counts}"]`);
    if (count) count.textContent = value === "0" ? "" : value;
  }
}

function place(card) {
  const before = document.getElementById(card.id);
  // A card that is dragged stays in the hand of the reader, and is read again later.
  if (before?.matches(".is-dragged")) { live.tasks.add(card.dataset.task); return; }
  const hadFocus = before !== null && before.contains(document.activeElement);
  before?.remove();
  const column = find(`#column-${card.dataset.status}`);
  const next = findAll(".card", column).find((other) => other.dataset.order > card.dataset.order);
  // Behind the last one that is shown it would be out of its order.
  if (!next && find(".more", column)) return;
  find(".cards", column).insertBefore(card, next ?? null);
  htmx.process(card);
  if (hadFocus) focusOn(card);
}

// The button of a card can be reached from its card alone.
function setStop(link, isStop) {
  for (const target of [link, ...findAll(".act", link.closest(".card"))]) target.tabIndex = isStop ? 0 : -1;
}

// One card of the board has the Tab stop; the arrow keys walk from it. The card of the open panel is marked.
function afterCards() {
  if (!board()) return;
  const links = findAll(".card-link", board());
  const stop = links.find((link) => link.tabIndex === 0 && link.checkVisibility()) ?? links.find((link) => link.checkVisibility()) ?? links[0];
  for (const link of links) setStop(link, link === stop);
  const open = find("#panel [data-shows-task]")?.dataset.showsTask;
  for (const card of findAll(".card", board())) card.classList.toggle("is-open", card.dataset.task === open);
  setButtonStops();
  writeTimes();
}
document.addEventListener("focusin", (event) => {
  if (!event.target.matches?.(".card-link")) return;
  for (const link of findAll('.card-link[tabindex="0"]')) setStop(link, false);
  setStop(event.target, true);
});

// The buttons of all columns have one Tab stop, and so have the agents above them. The arrow keys walk among them.
const BUTTON_ROWS = ["#board :is(.rail, .col-head .btn)", ".avatars .avatar"];
const rowOf = (element) => BUTTON_ROWS.find((row) => element?.matches?.(row));

function setButtonStops() {
  for (const row of BUTTON_ROWS) {
    const buttons = findAll(row).filter((button) => button.checkVisibility());
    const stop = buttons.find((button) => button === document.activeElement) ?? buttons.find((button) => button.tabIndex === 0) ?? buttons[0];
    for (const button of buttons) button.tabIndex = button === stop ? 0 : -1;
  }
}
document.addEventListener("focusin", (event) => { if (rowOf(event.target)) setButtonStops(); });
document.addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  const row = step && rowOf(event.target);
  if (!row || event.ctrlKey || event.altKey || event.metaKey || event.shiftKey) return;
  const buttons = findAll(row).filter((button) => button.checkVisibility());
  buttons[buttons.indexOf(event.target) + step]?.focus();
  event.preventDefault();
});

// What agents do changes the lines of cards. They are read at once, and then at most once a second.
let workTimer = null;
let workReadAt = -Infinity;
function hearWork() {
  if (workTimer || !board()) return;
  workTimer = setTimeout(() => {
    workTimer = null;
    workReadAt = performance.now();
    for (const card of findAll("#column-in_progress .card, .card:has(.dot.live)")) live.tasks.add(card.dataset.task);
    if (live.tasks.size > 0) showChangedTasks(false);
  }, Math.max(0, workReadAt + 1000 - performance.now()));
}

// ---- Columns ------------------------------------------------------------------------------------------------------------------

// The reader's choice for each column of a project: `rail` or `open`. Without one the width decides.
const foldsKey = () => `folds-${board().dataset.project}`;
const folds = () => { try { return JSON.parse(localStorage.getItem(foldsKey())) ?? {}; } catch { return {}; } };

function applyFolds() {
  if (!board()) return;
  const chosen = folds();
  const shown = find(".col-tabs .is-on")?.dataset.shows;
  for (const column of findAll(".col", board())) {
    const choice = chosen[column.dataset.status];
    column.classList.toggle("is-rail", choice === "rail");
    if (choice === "open") column.removeAttribute("data-fold");
    column.classList.toggle("is-shown", column.dataset.status === shown);
    find(".rail", column).setAttribute("aria-expanded", String(find(".cards", column).checkVisibility()));
  }
  afterCards();
}

function fold(column, choice) {
  localStorage.setItem(foldsKey(), JSON.stringify({ ...folds(), [column.dataset.status]: choice }));
  applyFolds();
  (find(".card-link", column)?.checkVisibility() ? find(".card-link", column) : find(choice === "rail" ? ".rail" : "[data-fold-away]", column)).focus();
}

document.addEventListener("click", (event) => {
  const column = event.target.closest(".col");
  if (event.target.closest("[data-unfold]")) fold(column, "open");
  if (event.target.closest("[data-fold-away]")) fold(column, "rail");
  const tab = event.target.closest("[data-shows]");
  if (tab) {
    for (const other of findAll("[data-shows]")) {
      other.classList.toggle("is-on", other === tab);
      other.setAttribute("aria-pressed", String(other === tab));
    }
    applyFolds();
  }
  // A phone shows the search when it is wanted.
  const shows = event.target.closest("[data-show-search]");
  if (shows) {
    const isShown = find("#standing").classList.toggle("is-searching");
    shows.setAttribute("aria-expanded", String(isShown));
    if (isShown) find("#search").focus();
  }
  if (event.target.closest("[data-clear-search]")) {
    for (const field of find("#find").elements) { field.checked = false; if (field.type !== "checkbox") field.value = ""; }
    trigger("board");
    keepFilter();
    find("#search").focus();
  }
});

// The filter of the board: words, and the values of the other fields. An empty field chooses nothing.
const FILTERS = ["q", "assignee", "priority", "needs", "merge"];
function boardFilter() {
  const form = find("#find");
  const fields = form ? [...new FormData(form)].map(([name, value]) => [name, value.trim()]) : [];
  return new Map(fields.filter(([, value]) => value));
}

// Writes the filter into a query, in place of the one that is there.
function putFilter(query) {
  if (!find("#find")) return;
  for (const name of FILTERS) query.delete(name);
  for (const [name, value] of boardFilter()) query.set(name, value);
}

// The address names the filter.
function keepFilter() { setAddress(location.href, "replace"); }
for (const kind of ["input", "change"]) document.addEventListener(kind, (event) => { if (event.target.form?.id === "find") keepFilter(); });

// ---- Moving cards -------------------------------------------------------------------------------------------------------------

// The card moves at once, and returns if the daemon refuses.
async function moveTask(card, status, { isUndo = false } = {}) {
  const before = card.dataset.status;
  if (status === before) return;
  const title = find(".card-link", card).textContent.trim();
  const place = { column: card.parentElement, next: card.nextElementSibling };
  const hadFocus = card.contains(document.activeElement);
  find(`#column-${status} .cards`).prepend(card);
  card.classList.add("is-moving");
  if (hadFocus) focusOn(card);
  const answer = await post(`${root}/ui/do/tasks/${card.dataset.task}/status`, { status });
  const is = answer?.headers.get("task-status");
  card.classList.remove("is-moving");
  if (is !== status) {
    if (card.isConnected && card.dataset.status === before) place.column.insertBefore(card, place.next?.isConnected ? place.next : null);
    if (hadFocus) focusOn(card);
    if (answer?.ok) tellMove({ task: card.dataset.task, from: before, to: is, isLater: true, isUndo });
    return;
  }
  find("#moved").textContent = `${title} → ${find(`#title-${status}`).textContent.trim()}`;
  tellMove({ task: card.dataset.task, from: before, to: status, isUndo });
  if (status === "blocked") askWhyBlocked(card.dataset.task);
}

// A task that is blocked by its card can get its reason afterwards.
async function askWhyBlocked(task) {
  const card = document.getElementById(`card-${task}`);
  if (!card || find("#panel [data-is-written]")) return;
  const { panel, address } = find(".card-link", card).dataset;
  await openPanel(panel, address, { from: card });
  find(`#panel [data-shows-task="${task}"] [data-asks-reason]`)?.click();
}

// The note about a move, with the way back. `isLater`: it was moved to In progress, and waits for other tasks.
function tellMove({ task, from, to, isLater = false, isUndo = false }) {
  if (isLater) {
    // Each move by a person ends the wish.
    const status = from === to || leadsTo(to, from) ? from : to;
    const withdraw = { text: body.dataset.undo, run: () => post(`${root}/ui/do/tasks/${task}/status`, { status }) };
    toast(body.dataset.startsLater, { isBad: false, action: isUndo ? null : withdraw });
    return;
  }
  const name = (find(`#title-${to}`) ?? find(`.states [data-sets="${to}"]`)).textContent.trim();
  const undo = { text: body.dataset.undo, run: () => undoMove(task, to, from) };
  // A task that is blocked again has lost its reason, and one that is finished again is done by hand.
  const mayUndo = !isUndo && !["blocked", "done"].includes(from) && (leadsTo(to, from) || (leadsTo(to, "todo") && leadsTo("todo", from)));
  toast(`${body.dataset.moved} ${name}`, { isBad: false, action: mayUndo ? undo : null });
}

const leadsTo = (from, to) => find(`#column-${from}, .states [data-sets="${from}"]`).dataset.to.split(" ").includes(to);

// The state control of a task moves it, too. What the state was is known only before.
const MOVES = ".states [data-sets], .why-blocked";
document.addEventListener("htmx:before:request", ({ detail: { ctx } }) => {
  if (!ctx.sourceElement.matches?.(MOVES)) return;
  const task = ctx.sourceElement.closest("[data-shows-task]");
  ctx.moved = { task: task.dataset.showsTask, from: find(".states [aria-pressed=true]", task).dataset.sets };
});
document.addEventListener("htmx:after:request", ({ detail: { ctx } }) => {
  const to = ctx.response.headers.get("task-status");
  const isLater = to !== (ctx.sourceElement.dataset.sets ?? "blocked");
  // A reason may be given again.
  if (ctx.moved && to && (ctx.moved.from !== to || isLater)) tellMove({ ...ctx.moved, to, isLater });
});

// Asks about the open subtasks of a task that its state control was to finish.
async function finishWithSubtasks({ moved, text }) {
  if (!await agreesToCancel(text)) return;
  const answer = await post(`${root}/ui/do/tasks/${moved.task}/status`, { status: "done", cancel_subtasks: true });
  if (answer?.ok) tellMove({ ...moved, to: "done" });
}

// A closed task is reopened first.
async function undoMove(task, from, status) {
  if (!leadsTo(from, status)) await post(`${root}/ui/do/tasks/${task}/status`, { status: "todo" });
  const card = document.getElementById(`card-${task}`);
  if (card && card.dataset.status !== status) moveTask(card, status, { isUndo: true });
  else post(`${root}/ui/do/tasks/${task}/status`, { status });
}

document.addEventListener("dragstart", (event) => {
  const card = event.target.closest?.(".card");
  if (!card) return;
  event.dataTransfer.setData("text/plain", card.dataset.task);
  event.dataTransfer.effectAllowed = "move";
  card.classList.add("is-dragged");
  find("#panel")?.classList.add("is-away");
  for (const column of findAll(".col")) {
    const mayDrop = card.dataset.to.split(" ").includes(column.dataset.status);
    column.classList.toggle("is-open-for", mayDrop);
    column.classList.toggle("is-refused", !mayDrop && column.dataset.status !== card.dataset.status);
  }
});
document.addEventListener("dragend", () => {
  for (const element of findAll(".is-dragged, .is-open-for, .is-target, .is-refused, .is-away")) {
    element.classList.remove("is-dragged", "is-open-for", "is-target", "is-refused", "is-away");
  }
});
const SCROLL_EDGE = 48;
document.addEventListener("dragover", (event) => {
  const column = event.target.closest?.(".col");
  for (const other of findAll(".is-target")) if (other !== column) other.classList.remove("is-target");
  const list = column && find(".cards", column);
  if (list) {
    const { top, bottom } = list.getBoundingClientRect();
    if (event.clientY - top < SCROLL_EDGE) list.scrollTop -= 12;
    if (bottom - event.clientY < SCROLL_EDGE) list.scrollTop += 12;
  }
  if (!column?.classList.contains("is-open-for")) return;
  event.preventDefault();
  column.classList.add("is-target");
});
document.addEventListener("drop", (event) => {
  const column = event.target.closest?.(".col");
  const card = find(".card.is-dragged");
  if (!column || !card) return;
  event.preventDefault();
  moveTask(card, column.dataset.status);
});

// ---- Keys of the board --------------------------------------------------------------------------------------------------------

// The columns whose cards can be seen.
const openColumns = () => findAll(".col").filter((column) => find(".cards", column).checkVisibility());

function stepInColumn(link, step) {
  const links = findAll(".card-link", link.closest(".cards"));
  const next = links[links.indexOf(link) + step];
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
}

function stepToColumn(link, step) {
  const columns = openColumns();
  let at = columns.indexOf(link.closest(".col")) + step;
  while (columns[at] && !find(".card-link", columns[at])) at += step;
  if (columns[at]) find(".card-link", columns[at]).focus();
}

function moveByKey(card, step) {
  if (board().dataset.mayChange !== "true") return;
  const columns = findAll(".col");
  const to = card.dataset.to.split(" ");
  let at = columns.indexOf(card.closest(".col")) + step;
  while (columns[at] && !to.includes(columns[at].dataset.status)) at += step;
  if (columns[at]) moveTask(card, columns[at].dataset.status);
}

document.addEventListener("keydown", (event) => {
  const link = event.target.closest?.(".card-link");
  if (!link || event.isComposing || event.ctrlKey || event.altKey || event.metaKey) return;
  const sideways = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  const along = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (along) stepInColumn(link, along);
  else if (sideways && event.shiftKey) moveByKey(link.closest(".card"), sideways);
  else if (sideways) stepToColumn(link, sideways);
  else return;
  event.preventDefault();
});
