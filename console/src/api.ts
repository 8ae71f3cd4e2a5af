// What the page asks the server for.

import { Failure, type Reply, type Word, decode, encode, join, text } from "./resp";

let token = "";
export const state = { user: "", mayWrite: false, onEnd: (_why: string) => {} };

async function post(path: string, body: Uint8Array): Promise<Response> {
  const headers: Record<string, string> = { "X-Kvasir-Token": token };
  if (state.mayWrite) headers["X-Kvasir-Write"] = "yes";
  const response = await fetch(`/api/${path}`, { method: "POST", headers, body: body as BodyInit });
  if (path === "login") return response;
  if (response.status === 401) {
    const why = (await response.clone().text()).trim();
    state.onEnd(`The session is over${why === "Unauthorized" ? "" : `: ${why}`}.`);
  }
  return response;
}

const raw = async (response: Response) => new Uint8Array(await response.arrayBuffer());

async function begin(response: Response): Promise<string> {
  if (response.status === 200) {
    const [session] = decode(await raw(response)) as [Reply[]];
    token = String(session![0]);
    state.user = String(session![1]);
    db = NaN;
    return "";
  }
  const isReply = response.headers.get("Content-Type") === "application/octet-stream";
  if (!isReply) return (await response.text()).trim();
  const [failure] = decode(await raw(response));
  return failure instanceof Failure ? failure.text : "no";
}

/** Goes on with the session that the browser has, if it has one. */
export async function resume(): Promise<boolean> {
  const response = await fetch("/api/session");
  return response.status === 200 && (await begin(response)) === "";
}

/** Why it failed; empty if it did not. */
export async function logIn(user: string, password: string): Promise<string> {
  return begin(await post("login", encode(["LOGIN", user, password])));
}

export async function logOut(): Promise<void> {
  await post("logout", new Uint8Array());
  state.onEnd("");
}

// A session has one request at a time.
let last: Promise<unknown> = Promise.resolve();

/** The replies to some calls. What the server refuses as a whole is the reply to each. */
export function calls(all: Word[][]): Promise<Reply[]> {
  const ask = async (): Promise<Reply[]> => {
    let why = "The server can't be reached.";
    try {
      const response = await post("command", join(all.map(encode)));
      if (response.status === 200) {
        const replies = decode(await raw(response));
        all.forEach((words, at) => note(words, replies[at]));
        return replies;
      }
      why = (await response.text()).trim();
    } catch (error) {
      // So fetch says that there is no answer, or half of one.
      if (!(error instanceof TypeError)) throw error;
    }
    return all.map(() => new Failure(why));
  };
  const asked = last.then(ask, ask);
  last = asked.catch(() => {});
  return asked;
}

const shown = (word: Word | undefined) =>
  word instanceof Uint8Array ? text(word) : String(word ?? "");

/** The database that the session is in; one that goes on may be in any. */
let db = NaN;

function note(words: Word[], reply: Reply | undefined): void {
  if (shown(words[0]).toUpperCase() === "SELECT" && !(reply instanceof Failure))
    db = Number(shown(words[1]));
}

/** As `calls`, in a database. Who may not choose one stays where all begin. */
export async function callsIn(wanted: number, all: Word[][]): Promise<Reply[]> {
  if (wanted === db) return calls(all);
  const [chosen, ...replies] = await calls([["SELECT", wanted], ...all]);
  if (!(chosen instanceof Failure)) return replies;
  const isThere = isNaN(db) && wanted === 0 && chosen.text.startsWith("NOPERM");
  return isThere ? replies : all.map(() => chosen);
}

/** Does something now and again, each time so long after it was done; returns how to stop. */
export function repeat(every: number, look: () => Promise<unknown>): () => void {
  let timer = 0;
  let isOver = false;
  const turn = async () => {
    await look();
    if (!isOver) timer = window.setTimeout(turn, every);
  };
  void turn();
  return () => {
    isOver = true;
    clearTimeout(timer);
  };
}

export async function call(...words: Word[]): Promise<Reply> {
  return (await calls([words]))[0] ?? null;
}

export interface Option {
  name: string;
  group: string;
  standard: string;
  change: string;
  doc: string;
  /** What else it is called, as in other servers. */
  aliases: string;
}

export async function options(): Promise<Option[]> {
  const response = await post("options", new Uint8Array());
  if (response.status !== 200) return [];
  return decode(await raw(response)).map((row) => {
    const [name, group, standard, change, doc, aliases] = (row as Reply[]).map(String);
    return {
      name: name!,
      group: group!,
      standard: standard!,
      change: change!,
      doc: doc!,
      aliases: aliases!,
    };
  });
}
