// Package awstest proves the product's cloud adapter at the wire: the real SDK against the simulated AWS.
//
// It holds tests only. It is the one place of the lab that looks inside the product.
package awstest
