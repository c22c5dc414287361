// Package crdtest proves the CustomResourceDefinitions on a real API server: its tests take every
// validation rule of the API, with one example that is accepted and one that is rejected. The examples are a
// table, by kind; a test compares the table with the schemas, so that no rule goes without.
package crdtest
