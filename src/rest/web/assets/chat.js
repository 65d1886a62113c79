
// ---- The chat -----------------------------------------------------------------------------------------------------------------

const chats = { unsent: new Map(), isFetching: false, isAgain: false };
const chatOf = () => find("[data-chat]");
const [projectOf, agentOf] = [(chat) => chat.dataset.chat.split("/")[0], (chat) => chat.dataset.chat.split("/")[1]];

function startChat(chat) {
  post(`${root}/ui/do/projects/${projectOf(chat)}/agents/${agentOf(chat)}/chat/start`, {});
}

function showStanding() {
  const chat = chatOf();
  const button = chat && find("#send", chat);
  if (!button) return;
  const isReady = find("[data-may-say]", chat) !== null;
  button.disabled = !isReady;
  button.textContent = isReady ? button.dataset.ready : button.dataset.preparing;
}

// A list that is at its end stays there while its content grows. Otherwise a button leads to the end.
const NEAR_END = 80;
const isNearEnd = (list) => list.scrollHeight - list.scrollTop - list.clientHeight < NEAR_END;

function scrollDown(chat) {
  const list = find(".messages", chat);
  list.scrollTop = list.scrollHeight;
  find("[data-to-end]", chat).hidden = true;
}

function beginChat(chat) {
  showStanding();
  scrollDown(chat);
  const list = find(".messages", chat);
  if (!chat.dataset.isBegun) {
    chat.dataset.isBegun = "yes";
    // A reader who scrolled up stays there when the room for the messages changes.
    let isAtEnd = true;
    list.addEventListener("scroll", () => {
      isAtEnd = isNearEnd(list);
      if (isAtEnd) find("[data-to-end]", chat).hidden = true;
    });
    find("[data-to-end]", chat).addEventListener("click", () => scrollDown(chat));
    new ResizeObserver(() => { if (isAtEnd) scrollDown(chat); }).observe(list);
    const field = find("textarea", chat);
    if (field) field.value = localStorage.getItem(draftKey(chat)) ?? "";
  }
  // What was said while the panel was on its way.
  fetchMessages();
}

// One draft for each chat.
const draftKey = (chat) => `draft-${chat.dataset.chat}`;
document.addEventListener("input", (event) => {
  const chat = event.target.id === "say" && event.target.closest("[data-chat]");
  if (!chat) return;
  if (event.target.value) localStorage.setItem(draftKey(chat), event.target.value);
  else localStorage.removeItem(draftKey(chat));
});

// Messages after the last one that is here, in the server's order. One fetch at a time: none is shown twice, or before another.
async function fetchMessages() {
  const chat = chatOf();
  if (!chat) return;
  if (chats.isFetching) { chats.isAgain = true; return; }
  chats.isFetching = true;
  try {
    for (let hasMore = true; hasMore && chat.isConnected;) {
      const list = find(".messages", chat);
      const last = findAll(".message:not(.is-unsent)", list).at(-1)?.dataset.id;
      const query = last ? `?after=${encodeURIComponent(last)}` : "";
      const answer = await fetch(`${root}/ui/parts/projects/${projectOf(chat)}/agents/${agentOf(chat)}/chat/messages${query}`);
      if (answer.status === 404 && last) { reopenChat(chat); break; }
      if (!answer.ok) break;
      hasMore = answer.headers.get("has-more") === "true" && Boolean(last);
      const holder = document.createElement("template");
      holder.innerHTML = await answer.text();
      const isAtEnd = isNearEnd(list);
      const n = list.children.length;
      for (const message of findAll(".message", holder.content)) {
        document.getElementById(message.id)?.remove();
        chats.unsent.delete(message.dataset.id);
        list.insertBefore(message, find(".is-unsent", list));
      }
      writeTimes();
  addCopyButtons();
      if (isAtEnd) scrollDown(chat);
      else if (list.children.length > n) find("[data-to-end]", chat).hidden = false;
    }
  } catch { /* the next news, or the next contact, fetches them */ } finally {
    chats.isFetching = false;
  }
  if (chats.isAgain) { chats.isAgain = false; fetchMessages(); }
}

// The last message that is here was forgotten by the daemon: the panel begins anew.
function reopenChat(chat) {
  htmx.ajax("GET", `${root}/ui/parts/projects/${projectOf(chat)}/agents/${agentOf(chat)}/chat`, { target: "#panel" });
}

document.addEventListener("click", async (event) => {
  if (!event.target.closest("[data-earlier]")) return;
  const chat = chatOf();
  const list = find(".messages", chat);
  const first = find(".message", list)?.dataset.id;
  const path = `${root}/ui/parts/projects/${projectOf(chat)}/agents/${agentOf(chat)}/chat/messages?before=${encodeURIComponent(first)}`;
  const answer = await fetch(path);
  if (!answer.ok) return;
  const height = list.scrollHeight;
  list.insertAdjacentHTML("afterbegin", await answer.text());
  list.scrollTop += list.scrollHeight - height;
  writeTimes();
  addCopyButtons();
  if (answer.headers.get("has-more") !== "true") event.target.remove();
});

function say(chat, content) {
  const id = `msg_${crypto.randomUUID?.() ?? [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16)).join("")}`;
  const message = document.createElement("li");
  message.className = "message is-ours is-unsent";
  message.id = id;
  message.dataset.id = id;
  const sender = document.createElement("span");
  sender.className = "sender";
  const name = document.createElement("b");
  name.textContent = chat.dataset.you;
  sender.append(name);
  const prose = document.createElement("span");
  prose.className = "prose keep-lines";
  prose.dir = "auto";
  prose.textContent = content;
  message.append(sender, prose);
  find(".messages", chat).append(message);
  scrollDown(chat);
  chats.unsent.set(id, { chat: chat.dataset.chat, content });
  sendUnsent();
}

// The text of a message that was refused is a draft again.
function giveBack(chat, content) {
  localStorage.setItem(`draft-${chat}`, content);
  const field = chatOf()?.dataset.chat === chat && find("#say");
  if (field && !field.value) field.value = content;
}

// One after another, in the order they were written, also when their panel is closed; the id makes a repetition harmless.
let isSending = false;
async function sendUnsent() {
  if (isSending) return;
  isSending = true;
  try {
    while (chats.unsent.size > 0) {
      const [id, { chat, content }] = chats.unsent.entries().next().value;
      const [project, agent] = chat.split("/");
      const path = `${root}/ui/do/projects/${project}/agents/${agent}/chat/messages`;
      const answer = await post(path, JSON.stringify({ id, content }), { isQuiet: true });
      const isRefused = answer && [400, 403, 404, 409, 413, 422].includes(answer.status);
      const shown = document.getElementById(id);
      if (answer?.ok || isRefused) {
        chats.unsent.delete(id);
        if (isRefused) {
          shown?.remove();
          giveBack(chat, content);
          tellProblem(await answer.text(), find("[data-say]"));
        }
      } else {
        if (shown) find(".sender", shown).textContent = `${chatOf().dataset.you} · ${chatOf().dataset.notSent}`;
        await new Promise((resolve) => setTimeout(resolve, 2000));
      }
    }
  } finally {
    isSending = false;
  }
  fetchMessages();
}

addEventListener("beforeunload", (event) => {
  if (chats.unsent.size > 0 || find("[data-is-written]")) event.preventDefault();
});

document.addEventListener("submit", (event) => {
  const form = event.target.closest("[data-say]");
  if (!form) return;
  event.preventDefault();
  const field = find("textarea", form);
  if (field.value.trim() === "" || find("#send", form).disabled) return;
  say(chatOf(), field.value);
  field.value = "";
  localStorage.removeItem(draftKey(chatOf()));
  field.focus();
});
// Enter sends where there is a keyboard; on touch it breaks the line, and the button sends. While a word is being composed, Enter
// ends that.
document.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.isComposing || event.shiftKey) return;
  const isTouch = matchMedia("(pointer: coarse)").matches;
  const form = event.target.closest?.("[data-say]");
  if (!form || (isTouch && !event.ctrlKey && !event.metaKey)) return;
  event.preventDefault();
  form.requestSubmit();
});
