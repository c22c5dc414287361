// Package resources has the values that the planner compares in its innermost loops: amounts per resource (Vec over
// Axes), host ports (HostPort, PortSet), and sets of small numbers (Bitset).
//
// All are plain values without references to nodes, pods or plans. Comparisons do not allocate.
package resources
