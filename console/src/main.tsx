// The console: who is not logged in logs in; others see one of the views.

import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import "./style.css";
import "uplot/dist/uPlot.min.css";
import { logIn, logOut, resume, state } from "./api";
import { Line } from "./cli";
import { Keys } from "./keys";
import { Live } from "./live";
import { HotKeys, Memory } from "./memory";
import { Slots } from "./slots";
import { Acl, Clients, Config, Functions, Slow } from "./tables";

const views = {
  Live,
  Keys,
  Commands: Line,
  "Hot keys": HotKeys,
  Memory,
  Slots,
  Clients,
  Slow,
  "ACL log": Acl,
  Options: Config,
  Functions,
};
type Name = keyof typeof views;

function Login({ why, onDone }: { why: string; onDone: () => void }) {
  const [failure, setFailure] = useState(why);
  const submit = async (event: Event) => {
    event.preventDefault();
    const form = new FormData(event.target as HTMLFormElement);
    const failed = await logIn(String(form.get("user")), String(form.get("password")));
    if (failed) setFailure(failed);
    else onDone();
  };
  return (
    <form class="login" onSubmit={submit}>
      <h1>Kvasir</h1>
      <label>
        User
        <input name="user" defaultValue="default" autocomplete="username" />
      </label>
      <label>
        Password
        <input name="password" type="password" autocomplete="current-password" autofocus />
      </label>
      <button>Log in</button>
      {failure && (
        <p class="failure" role="alert">
          {failure}
        </p>
      )}
    </form>
  );
}

function Page() {
  const named = () => decodeURIComponent(location.hash.slice(1)) as Name;
  const [name, setName] = useState<Name>(named() in views ? named() : "Live");
  const [mayWrite, setMayWrite] = useState(false);
  const View = views[name];
  const go = (to: Name) => {
    location.hash = encodeURIComponent(to);
    setName(to);
  };
  const write = (on: boolean) => setMayWrite((state.mayWrite = on));
  return (
    <>
      <header>
        <strong>Kvasir</strong>
        <nav>
          {(Object.keys(views) as Name[]).map((view) => (
            <button class={view === name ? "tab here" : "tab"} onClick={() => go(view)}>
              {view}
            </button>
          ))}
        </nav>
        <span class="who">
          <label class={mayWrite ? "danger" : ""}>
            <input
              type="checkbox"
              checked={mayWrite}
              onChange={(event) => write(event.currentTarget.checked)}
            />{" "}
            write
          </label>
          <span>{state.user}</span>
          <button onClick={() => void logOut()}>Log out</button>
        </span>
      </header>
      <main>
        <View key={name} />
      </main>
    </>
  );
}

function App() {
  const [isIn, setIsIn] = useState<boolean | null>(null);
  const [why, setWhy] = useState("");
  state.onEnd = (reason) => {
    setWhy(reason);
    setIsIn(false);
  };
  useEffect(() => void resume().then(setIsIn), []);
  if (isIn === null) return null;
  return isIn ? <Page /> : <Login why={why} onDone={() => setIsIn(true)} />;
}

render(<App />, document.getElementById("app")!);
