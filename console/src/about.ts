// What this console shows, for every part of the page.

import { createContext } from 'preact';
import { useContext } from 'preact/hooks';
import type { About as Shown } from './api.gen';

export const About = createContext<Shown | null>(null);

// useAbout is null until the server has answered.
export const useAbout = () => useContext(About);
