// Package replace finds commands that replace nodes one at a time: drifted and unhealthy nodes, and nodes that must be terminated before
// their replacement can be launched.
package replace
