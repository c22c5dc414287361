// Package awstest tests the product's AWS packages with the real SDK against the AWS API simulator.
//
// It holds tests only. It is the one place of the lab that looks inside the product.
package awstest
