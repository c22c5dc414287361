import { render } from 'preact';
import { App } from './app';
import { Gate } from './login';

render(<Gate><App /></Gate>, document.getElementById('root')!);
