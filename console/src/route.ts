// The address: every view, selection, grouping and filter is in it, so that a link shows the same thing.

import { useMemo } from 'preact/hooks';
import { useValue } from './value';

export interface Route {
  // path is like ["nodes", "ip-10-0-1-7"].
  path: string[];
  query: URLSearchParams;
}

// decoded is a part of an address; one that was cut within an escape stays as it is.
function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

// clusterOf is the cluster of an address such as #/@shop/fleet; empty for the only one.
export const clusterOf = (hash: string) => decoded(/^#\/@([^/?]*)/.exec(hash)?.[1] ?? '');

export const clusterHref = (cluster: string, view = 'fleet') => `#/@${encodeURIComponent(cluster)}/${view}`;

export function parse(hash: string): Route {
  const [path = '', query = ''] = hash.replace(/^#\/?(@[^/?]*\/?)?/, '').split('?');
  return { path: (path || 'fleet').split('/').map(decoded), query: new URLSearchParams(query) };
}

export const href = (path: string[], query: Record<string, string | null> = {}) => {
  const q = new URLSearchParams(Object.entries(query).filter((e): e is [string, string] => !!e[1])).toString();
  const cluster = path[0] === 'clusters' ? '' : clusterOf(location.hash);
  return `#/${[...(cluster ? [`@${encodeURIComponent(cluster)}`] : []), ...path.map(encodeURIComponent)].join('/')}${q ? `?${q}` : ''}`;
};

// shownTime is the recorded time of the address; null for now. What a page of the past links to is of that time, too.
const shownTime = () => parse(location.hash).query.get('t');

export const nodeHref = (name: string, at: string | null = shownTime()) => href(['nodes', name], { t: at });

export const claimHref = (name: string, at: string | null = shownTime()) => href(['nodeclaims', name], { t: at });

// podHref is for NAMESPACE/NAME.
export const podHref = (name: string, at: string | null = shownTime()) => href(['pods', ...name.split('/')], { t: at });

export const poolHref = (name: string) => href(['nodepools'], { pool: name, t: shownTime() });

export const go = (to: string) => {
  location.hash = to.slice(1);
};

// change sets parameters of the address; null removes one. Back undoes it if it is a step of its own.
export function change(values: Record<string, string | null>, step = false) {
  const { path, query } = parse(location.hash);
  for (const [k, v] of Object.entries(values)) v ? query.set(k, v) : query.delete(k);
  const to = href(path, Object.fromEntries(query));
  if (step) go(to);
  else {
    history.replaceState(null, '', to);
    dispatchEvent(new HashChangeEvent('hashchange'));
  }
}

function onHash(listener: () => void): () => void {
  addEventListener('hashchange', listener);
  return () => removeEventListener('hashchange', listener);
}

export function useRoute(): Route {
  const hash = useValue(onHash, () => location.hash);
  return useMemo(() => parse(hash), [hash]);
}

// apiPath is the path of the API for the cluster of the address.
export function apiPath(path: string): string {
  const cluster = path === '/clusters' ? '' : clusterOf(location.hash);
  return `/api/v1${cluster ? `/clusters/${encodeURIComponent(cluster)}` : ''}${path}`;
}

export const useCluster = (): string => useValue(onHash, () => clusterOf(location.hash));
