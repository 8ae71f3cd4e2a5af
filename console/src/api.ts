// What the page asks the server for.

import { Failure, type Reply, type Word, decode, encode, join } from "./resp";

let token = "";
export const state = { user: "", mayWrite: false, onEnd: () => {} };

async function post(path: string, body: Uint8Array): Promise<Response> {
  const headers: Record<string, string> = { "X-Kvasir-Token": token };
  if (state.mayWrite) headers["X-Kvasir-Write"] = "yes";
  const response = await fetch(`/api/${path}`, { method: "POST", headers, body: body as BodyInit });
  if (response.status === 401 && path !== "login") state.onEnd();
  return response;
}

const raw = async (response: Response) => new Uint8Array(await response.arrayBuffer());

async function begin(response: Response): Promise<string> {
  if (response.status === 200) {
    const [session] = decode(await raw(response)) as [Reply[]];
    token = String(session![0]);
    state.user = String(session![1]);
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
  state.onEnd();
}

// A session has one request at a time.
let last: Promise<unknown> = Promise.resolve();

/** The replies to some calls. What the server refuses as a whole is the reply to each. */
export function calls(all: Word[][]): Promise<Reply[]> {
  const ask = async (): Promise<Reply[]> => {
    const response = await post("command", join(all.map(encode)));
    if (response.status === 200) return decode(await raw(response));
    const failure = new Failure((await response.text()).trim());
    return all.map(() => failure);
  };
  const asked = last.then(ask, ask);
  last = asked.catch(() => {});
  return asked;
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
}

export async function options(): Promise<Option[]> {
  const response = await post("options", new Uint8Array());
  if (response.status !== 200) return [];
  return decode(await raw(response)).map((row) => {
    const [name, group, standard, change, doc] = (row as Reply[]).map(String);
    return { name: name!, group: group!, standard: standard!, change: change!, doc: doc! };
  });
}
