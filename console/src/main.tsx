import { render } from 'preact';
import { App } from './app';
import { connect } from './live';

connect();
render(<App />, document.getElementById('root')!);
