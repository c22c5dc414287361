// Prints the snapshot of a generated cluster: node test/print-fleet.mjs 300 > fleet.json && dovetail console -f fleet.json
import { snapshot } from './fleet.mjs';

process.stdout.write(snapshot(Number(process.argv[2] ?? 300)));
