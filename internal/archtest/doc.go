// Package archtest holds, as a test, the direction of imports in this repository.
package archtest
