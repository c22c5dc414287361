// What is shown instead of the console while the server lets nobody in: who may, and how.

import { type ComponentChildren, Fragment } from 'preact';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import type { Problem } from './api.gen';
import { connect } from './live';
import { Banner, Code } from './parts';
import { useCluster } from './route';
import { hasToken, logIn, logOut, useRefusal } from './session';

// again is how soon a server on standby is tried again, in ms.
const again = 5_000;

// Gate shows its children once the server answers.
export function Gate({ children }: { children: ComponentChildren }) {
  const refusal = useRefusal();
  const cluster = useCluster();
  const [connected, setConnected] = useState<string | null>(null);
  useLayoutEffect(() => {
    if (!refusal) {
      const end = connect();
      setConnected(cluster);
      return end;
    }
    if (refusal.code !== 'Standby') return;
    const timer = setTimeout(() => logIn(''), again);
    return () => clearTimeout(timer);
  }, [refusal, cluster]);
  if (!refusal) {
    // Nothing of one cluster stays for another: neither components nor, until the connection is to this one, its nodes.
    return connected === cluster ? <Fragment key={cluster}>{children}</Fragment> : null;
  }
  return (
    <main class="gate">
      {refusal.code === 'Unauthenticated' && <LogIn problem={refusal} />}
      {refusal.code === 'NotAllowed' && <NotAllowed problem={refusal} />}
      {refusal.code === 'Standby' && <Standby problem={refusal} />}
    </main>
  );
}

const account = 'dovetail-console';

const createAccount = `kubectl create serviceaccount ${account} -n kube-system
kubectl create clusterrole ${account} --verb=get --non-resource-url=/console
kubectl create clusterrolebinding ${account} --clusterrole=${account} \\
  --serviceaccount=kube-system:${account}`;

function LogIn({ problem }: { problem: Problem }) {
  const [text, setText] = useState('');
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => {
    document.title = 'Log in · Dovetail';
    input.current?.focus();
  }, []);
  const tried = hasToken();
  return (
    <>
      <h1>Log in</h1>
      <p>This console shows what the controller can read: nodes, pods and NodePools of all namespaces. It needs a token of the cluster.</p>
      {tried && <Banner kind="bad"><b>Not logged in.</b> {problem.message}.</Banner>}
      <form onSubmit={(e) => {
        e.preventDefault();
        if (text.trim()) logIn(text.trim());
      }}>
        <label for="token">Token</label>
        <input
          id="token" ref={input} type="password" autocomplete="off" spellcheck={false} value={text} aria-describedby="token-kept"
          onInput={(e) => setText(e.currentTarget.value)}
        />
        <button class="button" type="submit">Log in</button>
      </form>
      <p id="token-kept" class="faint">It stays in this tab, until you close it, and is sent to this server only.</p>
      <h2>Create a token</h2>
      <Code text={`kubectl create token ${account} -n kube-system --duration 1h`} label="Copy the command" />
      <h2>If there is no account for it yet</h2>
      <Code text={createAccount} label="Copy the commands" />
    </>
  );
}

function NotAllowed({ problem }: { problem: Problem }) {
  useEffect(() => {
    document.title = 'No permission · Dovetail';
  }, []);
  return (
    <>
      <h1>No permission to read the console</h1>
      <p>The token is valid, and {problem.message}. Bind a ClusterRole with this rule to it:</p>
      <Code text={problem.rule} label="Copy the rule" />
      <p class="actions">
        <button class="button" onClick={() => logIn('')}>Try again</button>
        <button class="button plain" onClick={logOut}>Use another token</button>
      </p>
    </>
  );
}

function Standby({ problem }: { problem: Problem }) {
  useEffect(() => {
    document.title = 'Standby · Dovetail';
  }, []);
  return (
    <>
      <h1>This replica is on standby</h1>
      <p>{problem.message[0]?.toUpperCase()}{problem.message.slice(1)}. This shows which one it is; forward the port of that pod:</p>
      <Code text="kubectl get lease karpenter-leader-election -n kube-system -o jsonpath='{.spec.holderIdentity}'" label="Copy the command" />
      <p class="faint" role="status">If this replica becomes the leader, the console appears here.</p>
    </>
  );
}
