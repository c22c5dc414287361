// Package archtest tests the package layout: the direction of imports, and that destructive AWS calls require proof of
// ownership.
package archtest
