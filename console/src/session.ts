// Who the page is to the server. A console that is reached from other machines needs a token: it is kept in this tab, until the tab is
// closed, and sent with each request. There is no cookie.

import type { Problem } from './api.gen';
import { exportedAnswer, isExported } from './exported';
import { useValue } from './value';

const stored = 'token';

let token = sessionStorage.getItem(stored) ?? '';
let refusal: Problem | null = null;
const listeners = new Set<() => void>();

function changed() {
  for (const listener of listeners) listener();
}

// request is fetch with the token; of an export, it reads files.
export const request = (path: string, init: RequestInit = {}): Promise<Response> => isExported ? exportedAnswer(path, init) :
  fetch(path, token ? { ...init, headers: { ...init.headers, Authorization: `Bearer ${token}` } } : init);

// shut are the codes of answers by which nothing can be shown until somebody does something.
const shut = new Set(['Unauthenticated', 'NotAllowed', 'Standby']);

// refused notes a problem if it is one of who the user is, and reports whether it is.
export function refused(problem: Problem): boolean {
  if (!shut.has(problem.code)) return false;
  if (refusal?.code !== problem.code || refusal.message !== problem.message) {
    refusal = problem;
    changed();
  }
  return true;
}

// logIn tries a token; an empty one only tries again.
export function logIn(next: string) {
  if (next) token = next;
  sessionStorage.setItem(stored, token);
  refusal = null;
  changed();
}

export function logOut() {
  token = '';
  sessionStorage.removeItem(stored);
  location.reload();
}

export const hasToken = () => token !== '';

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => void listeners.delete(listener);
}

// useRefusal is why the server shows nothing; null while it does.
export const useRefusal = (): Problem | null => useValue(subscribe, () => refusal);
