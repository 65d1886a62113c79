// What the page does by itself: it listens to what happens and asks for the parts that show it; it moves cards, opens panels and
// dialogs, talks in the chat panel, follows output. What anything means is decided by the daemon.
"use strict";

const body = document.body;
// The path of this server behind a proxy. Addresses in the page begin with it already.
const root = body.dataset.base;
const find = (selector, within = document) => within.querySelector(selector);
const findAll = (selector, within = document) => [...within.querySelectorAll(selector)];
function make(name, properties, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
}
function makeButton(className, textContent, run) {
  const button = make("button", { type: "button", className, textContent });
  button.addEventListener("click", run);
  return button;
}

// ---- Telling the reader -------------------------------------------------------------------------------------------------------

const SHOWN_FOR = 6000;
const MAX_TOASTS = 3;

function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("class", "i");
  svg.setAttribute("aria-hidden", "true");
  const use = document.createElementNS("http://www.w3.org/2000/svg", "use");
  use.setAttribute("href", `#${name}`);
  svg.append(use);
  return svg;
}

// A mistake stays until it is closed, and interrupts a screen reader. Other notes end by themselves, unless the reader is at them.
function toast(text, { detail = "", isBad = true, action = null } = {}) {
  const toast = make("div", { className: isBad ? "toast bad" : "toast", role: isBad ? "alert" : null }, icon(isBad ? "i-bad" : "i-yes"),
    make("span", {}, make("b", { textContent: text }), " ", make("bdi", { textContent: detail })));
  if (action) toast.append(makeButton("act", action.text, () => { toast.remove(); action.run(); }));
  const close = makeButton("btn icon ghost", "", () => toast.remove());
  close.setAttribute("aria-label", body.dataset.wordClose);
  close.append(icon("i-close"));
  toast.append(close);
  const toasts = find("#toasts");
  // What is beside an open dialog can't be used.
  (findAll("dialog[open]").at(-1) ?? body).append(toasts);
  toasts.append(toast);
  // A mistake goes last.
  while (toasts.children.length > MAX_TOASTS) (find(".toast:not(.bad)", toasts) ?? toasts.firstElementChild).remove();
  if (isBad) return;
  const end = () => (toast.matches(":hover, :focus-within") ? setTimeout(end, 1000) : toast.remove());
  setTimeout(end, SHOWN_FOR);
}

function problemIn(text) {
  // There may be no answer, or one that is not from this daemon.
  try { return JSON.parse(text); } catch { return {}; }
}

// A problem (RFC 9457) in the daemon's words, at its field if it has one.
function tellProblem(text, form = null) {
  const problem = problemIn(text);
  if (form && problem.problems?.some((one) => markField(form, one))) return;
  toast(body.dataset.wentWrong, { detail: [problem.detail, problem.hint].filter(Boolean).join(" · ") });
}

document.addEventListener("htmx:response:error", (event) => {
  const { ctx } = event.detail;
  const form = ctx.sourceElement.closest?.("form");
  if (ctx.response.status === 401) askLogin();
  else if (ctx.moved && isAboutSubtasks(ctx.text)) finishWithSubtasks(ctx);
  else if (ctx.response.status === 412 && form) tellChanged(form);
  else if (ctx.response.headers.get("form-id") && form) renewForm(form, ctx);
  else if (isBlank(ctx.target) && !isReadAgain(ctx.sourceElement)) tellInPlace(ctx);
  else if (!isReadAgain(ctx.sourceElement)) tellProblem(ctx.text, form);
  // The task of the panel was deleted elsewhere.
  if (ctx.response.status === 404 && ctx.sourceElement.matches?.("#panel :is(.task, .agent)")) closePanel();
});

// The reader did not ask for a part that is read again by itself. The line about the connection tells that it is lost.
const isReadAgain = (element) => /live-|every/.test(element?.getAttribute?.("hx-trigger") ?? "");
document.addEventListener("htmx:error", (event) => {
  const { ctx } = event.detail;
  if (isReadAgain(event.target)) return;
  if (isBlank(ctx?.target)) tellInPlace(ctx);
  else toast(body.dataset.lostContact, { action: sendingAgain(ctx?.sourceElement ?? event.target) });
});

// ---- Places that are filled on demand ---------------------------------------------------------------------------------------

// A place that shows nothing yet. What a place shows stays until its new content is there.
const isBlank = (place) => Boolean(place?.matches?.("[data-place]")) && [...place.children].every((child) => child.matches(".skeleton, .none, .failed"));

// Lines stand for what comes, if it takes longer than a moment.
document.addEventListener("htmx:before:request", ({ detail: { ctx } }) => {
  const place = ctx.target;
  // A closed dialog may hold a new task that was not sent. Its draft is kept.
  if (place === dialog && !dialog.open) dialog.replaceChildren();
  if (!isBlank(place) || isReadAgain(ctx.sourceElement)) return;
  ctx.skeleton = setTimeout(() => {
    if (ctx.status !== "issuing" || !isBlank(place)) return;
    place.asked = ctx;
    place.replaceChildren(make("div", { className: "skeleton" }, ...[1, 2, 3, 4].map(() => make("span"))));
    place.setAttribute("aria-busy", "true");
  }, body.dataset.skeletonAfter);
});
document.addEventListener("htmx:finally:request", ({ detail: { ctx } }) => {
  clearTimeout(ctx.skeleton);
  ctx.target?.removeAttribute?.("aria-busy");
  // A request that was given up leaves nothing.
  if (ctx.target?.isConnected && isBlank(ctx.target)) find(".skeleton", ctx.target)?.remove();
});

// The focus goes back to the control that was used, or to what is around it, if the control is gone.
document.addEventListener("htmx:before:request", ({ detail: { ctx } }) => {
  const at = document.activeElement;
  if (at === body || !ctx.sourceElement.contains?.(at)) return;
  ctx.focused = [];
  for (let element = at; element && !element.matches("main, #panel"); element = element.parentElement) ctx.focused.push(element);
  lastFocused = ctx;
});
// A reader who clicked elsewhere meanwhile wants no focus back.
let lastFocused = null;
document.addEventListener("pointerdown", () => { if (lastFocused) lastFocused.focused = null; });
document.addEventListener("htmx:finally:request", ({ detail: { ctx } }) => setTimeout(() => {
  if (document.activeElement !== body || find("dialog[open]")) return;
  const isThere = (element) => element.isConnected && element.checkVisibility() && !element.disabled;
  const place = ctx.focused?.map((element) => document.getElementById(element.id) ?? element).find(isThere);
  if (!place) return;
  if (place.tabIndex < 0) {
    place.tabIndex = -1;
    place.addEventListener("blur", () => place.removeAttribute("tabindex"), { once: true });
  }
  place.focus({ preventScroll: true });
}));

// A part that failed says so in its place, and can be asked for again.
function tellInPlace({ target, sourceElement, request, text }) {
  const again = () => htmx.ajax("GET", request.action, { source: sourceElement?.isConnected ? sourceElement : target, target });
  const close = target === dialog ? () => closeDialog({ isDone: true }) : target.id === "panel" && (() => closePanel());
  const note = make("div", { className: "call bad failed", role: "alert" }, icon("i-bad"),
    make("p", {}, make("b", { textContent: problemIn(text).detail ?? body.dataset.noAnswer })),
    make("p", { className: "row wrap" }, makeButton("btn", body.dataset.tryAgain, again), ...(close ? [makeButton("btn ghost", body.dataset.wordClose, close)] : [])));
  target.replaceChildren(note);
}
document.addEventListener("htmx:after:request", (event) => {
  const { ctx } = event.detail;
  // What was saved is not lost by leaving.
  if (ctx.request.method !== "GET" && ctx.response.status < 300) ctx.sourceElement.removeAttribute("data-is-written");
  if (ctx.response.status !== 204) return;
  if (ctx.sourceElement.matches(".why-blocked")) leaveReason(ctx.sourceElement);
  if (ctx.sourceElement.matches("[data-draft]")) {
    forgetTaskDraft(ctx.sourceElement);
    tellNewTask(ctx.response.headers.get("task-id"));
  }
  if (ctx.sourceElement.matches("[data-close-when-done]")) {
    const isAnother = find("[data-make-another]", ctx.sourceElement)?.checked;
    const wasOpen = dialog.open;
    closeDialog({ isDone: true });
    // Its end gives up what is asked for it, and comes a moment later.
    if (isAnother && wasOpen) dialog.addEventListener("close", () => htmx.ajax("GET", ctx.sourceElement.dataset.again, { target: "#dialog" }), { once: true });
  }
  if (ctx.sourceElement.dataset.reopenWhenDone) endEditing(ctx.sourceElement);
});

// Shows a task anew after one of its forms was saved. What is written in its other forms stays.
function endEditing(form) {
  const task = form.closest("[data-shows-task]");
  if (form.matches(".in-place")) leaveEdit(form);
  else {
    form.reset();
    for (const name of ["data-is-written", "hx-morph-skip"]) form.removeAttribute(name);
    find("textarea", form).focus();
  }
  htmx.ajax("GET", form.dataset.reopenWhenDone, { source: task, target: task, swap: "outerMorph" });
}

// ---- Times, in the words and the zone of the reader ---------------------------------------------------------------------------

const locale = document.documentElement.lang;
const relative = new Intl.RelativeTimeFormat(locale, { numeric: "auto", style: "short" });
const absolute = new Intl.DateTimeFormat(locale, { dateStyle: "medium", timeStyle: "long" });
const date = new Intl.DateTimeFormat(locale, { dateStyle: "medium" });
const clock = new Intl.DateTimeFormat(locale, { timeStyle: "short" });
const seconds = new Intl.DateTimeFormat(locale, { timeStyle: "medium" });
const MINUTE = 60;
const HOUR = 3600;
const DAY = 86400;

function duration(seconds) {
  const pad = (n) => String(n).padStart(2, "0");
  if (seconds < MINUTE) return `${seconds}s`;
  if (seconds < HOUR) return `${Math.floor(seconds / MINUTE)}m ${pad(seconds % MINUTE)}s`;
  return `${Math.floor(seconds / HOUR)}h ${pad(Math.floor((seconds % HOUR) / MINUTE))}m`;
}

// A time of the last day is relative, one of the last week is a day with its time, an older one is a date.
function timeText(time) {
  const at = new Date(time.dateTime);
  const ahead = Math.round((at - Date.now()) / 1000);
  const distance = Math.abs(ahead);
  // The time since a launch began does not change.
  if (time.classList.contains("offset")) return time.textContent;
  if (time.classList.contains("seconds")) return seconds.format(at);
  if (time.classList.contains("clock")) return clock.format(at);
  if (time.classList.contains("left")) return duration(Math.max(0, ahead));
  if (time.classList.contains("elapsed")) return duration(Math.max(0, -ahead));
  if (time.classList.contains("since") && distance < DAY) return clock.format(at);
  if (distance < MINUTE) return relativeText(ahead, "second");
  if (distance < HOUR) return relativeText(Math.round(ahead / MINUTE), "minute");
  if (distance < DAY) return relativeText(Math.round(ahead / HOUR), "hour");
  if (distance < 7 * DAY) return `${relativeText(daysAhead(at), "day")}, ${clock.format(at)}`;
  return date.format(at);
}

// Without the full stop of an abbreviation, such as that of "14 min. ago".
const relativeText = (n, unit) => relative.format(n, unit).replace(".", "");

// The number of midnights until a time, in the zone of the reader.
function daysAhead(at) {
  const midnight = (time) => new Date(time).setHours(0, 0, 0, 0);
  return Math.round((midnight(at) - midnight(Date.now())) / (DAY * 1000));
}

function writeTimes() {
  for (const time of findAll("time")) {
    const text = timeText(time);
    if (time.textContent !== text) time.textContent = text;
    if (!time.title) time.title = absolute.format(new Date(time.dateTime));
  }
}
setInterval(writeTimes, 1000);

// ---- What needs a person: its number in the title of the window, and a notification ----------------------------------------

const countAttention = () => Number(find("#side-inbox")?.dataset.attention ?? 0);
const mayNotify = () => localStorage.getItem("notifications") === "on" && globalThis.Notification?.permission === "granted";
let shownAttention = countAttention();

document.addEventListener("htmx:after:swap", () => {
  const n = countAttention();
  const title = document.title.replace(/^\(\d+\) /, "");
  document.title = n > 0 ? `(${n}) ${title}` : title;
  Object.assign(find(".tabbar .count"), { textContent: n, hidden: n === 0 });
  const mark = find("link[rel=icon]");
  const href = n > 0 ? mark.dataset.waits : mark.dataset.calm;
  if (mark.getAttribute("href") !== href) mark.href = href;
  // The tag makes one notification of those of several tabs.
  const isNews = n > shownAttention;
  shownAttention = n;
  if (isNews && document.hidden && mayNotify()) notify();
});

function notify() {
  try {
    new Notification(body.dataset.needsPerson, { body: document.title, tag: `${location.host}${root}` });
  } catch { /* Phones know only the notifications of workers. */ }
}

const notifications = find("#notifications");
if (notifications) {
  notifications.checked = mayNotify();
  notifications.addEventListener("change", async () => {
    const isAllowed = notifications.checked && await globalThis.Notification?.requestPermission() === "granted";
    if (notifications.checked && !isAllowed) toast(body.dataset.notAllowed);
    notifications.checked = isAllowed;
    localStorage.setItem("notifications", isAllowed ? "on" : "off");
  });
}

// ---- What happens -------------------------------------------------------------------------------------------------------------

// One stream per page. A hidden page gives it up, so that many tabs don't use up what a browser grants to one server;
// a chat keeps it, because its panel is open as long as the stream is, and so does a page that may notify its reader.
const live = { source: null, after: Number(body.dataset.after), chat: null, pending: new Set(), tasks: new Set(), workspaces: new Set() };

const needsStream = () => !document.hidden || live.chat !== null || mayNotify();

function listen() {
  live.source?.close();
  if (!needsStream()) { live.source = null; return; }
  const query = new URLSearchParams({ after: live.after });
  if (live.chat) query.set("chat", live.chat);
  const source = new EventSource(`${body.dataset.events}?${query}`);
  live.source = source;
  source.addEventListener("open", () => {
    tellContact(true);
    // What could not be fetched meanwhile.
    if (live.tasks.size > 0) hear({ topic: "task" });
  });
  source.addEventListener("error", async () => {
    tellContact(false);
    if (source.readyState !== EventSource.CLOSED) return;
    // A refusal ends it for good. A reader whose login has ended is shown how to log in.
    const answer = await fetch(`${root}/ui/settings`, { headers: { "hx-request": "true" } }).catch(() => null);
    if (answer?.status === 401) askLogin();
    else setTimeout(() => live.source === source && listen(), 3000);
  });
  source.addEventListener("message", (event) => {
    if (event.lastEventId) live.after = Number(event.lastEventId);
    for (const news of JSON.parse(event.data)) hear(news);
  });
}

// A lost connection is told if it lasts: beside the name of the reader, and later in a banner.
const lostTimers = [];
function tellContact(isThere) {
  // A phone has no place for the mark beside the name.
  const afterMs = [body.dataset.goneAfter, find("#contact")?.checkVisibility() ? body.dataset.lostAfter : body.dataset.goneAfter];
  if (isThere) {
    lostTimers.splice(0).forEach(clearTimeout);
    showContact(true);
    find("#lost").hidden = true;
  } else if (lostTimers.length === 0) {
    lostTimers.push(setTimeout(() => showContact(false), afterMs[0]), setTimeout(() => { find("#lost").hidden = false; }, afterMs[1]));
  }
}
function showContact(isThere) {
  const contact = find("#contact");
  if (!contact) return;
  contact.classList.toggle("is-there", isThere);
  contact.replaceChildren(make("span", { textContent: isThere ? contact.dataset.live : contact.dataset.gone }));
}

// News are gathered for a moment: ten in a row ask for the same part once.
function hear(news) {
  if (live.pending.size === 0) setTimeout(tellParts, 30);
  live.pending.add(news.topic);
  if (news.task) live.tasks.add(news.task);
  if (news.topic === "workspace") live.workspaces.add(news.task);
}

const trigger = (name) => body.dispatchEvent(new CustomEvent(`live-${name}`));

// Agents report their progress often. It is shown at most once a second.
let progressTimer = null;
function hearProgress() {
  progressTimer ??= setTimeout(() => {
    progressTimer = null;
    trigger("launch");
    trigger("task");
  }, 1000);
}

// A filtered board is read at most once a second.
let filterTimer = null;
function readFilteredBoard() {
  filterTimer ??= setTimeout(() => {
    filterTimer = null;
    trigger("board");
  }, 1000);
}

function tellParts() {
  const topics = [...live.pending];
  live.pending.clear();
  const all = topics.includes("reset");
  // What agents report about their work changes the status only.
  const isWork = topics.includes("work") || topics.includes("status");
  if (all || topics.includes("task") || topics.includes("workspace")) showChangedTasks(all);
  else if (isWork) hearWork();
  // A launch that begins or ends may make another task match the filter.
  if (topics.includes("work") && boardFilter().size > 0) readFilteredBoard();
  const changes = find("[data-changes-of]");
  if (changes && (all || live.workspaces.has(changes.dataset.changesOf))) trigger("changes");
  live.workspaces.clear();
  if (all || topics.some((topic) => topic === "work" || topic === "task")) trigger("work");
  if (all || topics.includes("work")) { trigger("launch"); trigger("task"); }
  else if (isWork) hearProgress();
  if (all || topics.includes("status")) trigger("status");
  if (all || topics.includes("chat")) trigger("chat");
  if (all || topics.includes("chat") || topics.includes("work")) fetchMessages();
}

document.addEventListener("visibilitychange", () => {
  const isListening = live.source && live.source.readyState !== EventSource.CLOSED;
  if (needsStream() !== Boolean(isListening)) listen();
});

// ---- Asking -------------------------------------------------------------------------------------------------------------------

async function post(path, content, { isQuiet = false } = {}) {
  const isJson = typeof content === "string";
  const headers = isJson ? { "content-type": "application/json" } : {};
  try {
    const answer = await fetch(path, { method: "POST", headers, body: isJson ? content : new URLSearchParams(content) });
    if (answer.status === 401) askLogin();
    else if (!answer.ok && !isQuiet) {
      const text = await answer.text();
      if (isAboutSubtasks(text)) return await agreesToCancel(text) ? post(path, { ...content, cancel_subtasks: true }) : answer;
      tellProblem(text);
    }
    return answer;
  } catch {
    if (!isQuiet) toast(body.dataset.lostContact);
    return null;
  }
}

async function fetchPart(path) {
  try {
    const answer = await fetch(path, { headers: { "hx-request": "true" } });
    return answer.ok ? await answer.text() : null;
  } catch { return null; }
}
