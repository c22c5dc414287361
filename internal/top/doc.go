// Package top is the live view of a cluster in a terminal: nodes by pool with their use, price and state, pending pods with
// their reasons, and what planned changes would save.
//
// It is pure. Observe makes a Fleet of API objects, Predict lets the engine find the planned changes, and the Model turns
// messages into states and states into screens. Package top/live reads the cluster, package top/screen drives the terminal.
package top
