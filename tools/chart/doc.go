// Package chart tests the Helm charts in deploy/chart with Helm's own engine, which nothing else here depends on: the
// module is its own.
//
// What the charts render of the values in testdata is in the files beside them; the lab applies these to a real API server.
package chart

//go:generate go run ./generate ../../deploy/chart/dovetail ../../deploy/chart/dovetail-crd ../../deploy/chart/dovetail-policies
