// Answers of the API, kept while the next one is under way.

import { useEffect, useRef, useState } from 'preact/hooks';
import type { Problem } from './api.gen';
import { apiPath } from './route';
import { refused, request } from './session';

const away: Problem = {
  status: 0, code: 'NoConsole', field: '', rule: '',
  message: 'The console’s own server does not answer. It may have been stopped: start dovetail console again.',
};

// get asks for a path; with a body, it posts that.
export async function get<T>(path: string, signal?: AbortSignal, body?: unknown): Promise<T> {
  let response: Response;
  try {
    response = await request(apiPath(path), body === undefined ? { signal } : {
      signal, method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body),
    });
  } catch (e) {
    if (signal?.aborted) throw e;
    throw away;
  }
  let answer: unknown;
  try {
    answer = await response.json();
  } catch (e) {
    if (signal?.aborted) throw e;
    throw away; // the body was cut, by a server that stops or a page that is left: it is no answer, whatever the status
  }
  if (!response.ok) {
    refused(answer as Problem);
    throw answer as Problem;
  }
  return answer as T;
}

export interface Answer<T> {
  data: T | null;
  problem: Problem | null;
  // at is when the data came, in ms.
  at: number;
  busy: boolean;
  reload: () => void;
}

// retry is how soon a failed request is made again, in ms; loading how soon while the cluster is being read.
const retry = 5_000;
const loading = 1_000;

// useAnswer gets a path now, whenever the trigger changes, and every so many ms; never more than one request at a time.
export function useAnswer<T>(path: string | null, options: { every?: number; trigger?: unknown } = {}): Answer<T> {
  const [state, setState] = useState<{ path: string | null; data: T | null; problem: Problem | null; at: number; busy: boolean }>({
    path, data: null, problem: null, at: 0, busy: true,
  });
  const [turn, setTurn] = useState(0);
  const busy = useRef(false);
  const missed = useRef(false);
  const every = useRef(options.every);
  every.current = options.every; // it may change from one request to the next
  useEffect(() => {
    if (path === null) return;
    const abort = new AbortController();
    let timer = 0;
    const load = async () => {
      if (busy.current) {
        missed.current = true;
        return;
      }
      busy.current = true;
      let next: number | undefined;
      setState((s) => (s.path === path ? { ...s, busy: true } : { path, data: null, problem: null, at: 0, busy: true }));
      try {
        const data = await get<T>(path, abort.signal);
        if (!abort.signal.aborted) setState({ path, data, problem: null, at: Date.now(), busy: false });
      } catch (e) {
        if (!abort.signal.aborted) {
          const problem = e as Problem;
          next = problem.code === 'Loading' ? loading : problem.code === 'NotFound' ? undefined : retry;
          setState((s) => ({ ...s, path, problem, busy: false }));
        }
      }
      busy.current = false;
      if (abort.signal.aborted) return;
      if (missed.current) {
        missed.current = false;
        void load();
      } else if (next ?? every.current) timer = setTimeout(load, next ?? every.current);
    };
    busy.current = false;
    void load();
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, [path, turn, options.trigger]);
  const fits = state.path === path;
  return {
    data: fits ? state.data : null, problem: fits ? state.problem : null, at: state.at, busy: fits ? state.busy : true,
    reload: () => setTurn((t) => t + 1),
  };
}
