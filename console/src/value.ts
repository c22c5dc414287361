// Values that change outside of components.

import { useLayoutEffect, useState } from 'preact/hooks';

// useValue is what get returns, now and whenever a listener is called. It subscribes before the browser does anything else: an effect waits
// for the next frame, and a component would miss a change before that until the next one.
export function useValue<T>(subscribe: (listener: () => void) => () => void, get: () => T): T {
  const [value, setValue] = useState(get);
  useLayoutEffect(() => {
    const update = () => setValue(() => get());
    update();
    return subscribe(update);
  }, []);
  return value;
}
