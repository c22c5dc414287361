// Package hostilepods is test support: pods that a tenant makes with bad intentions or by mistake. The API server admits all of them, which
// a test of the lab checks.
package hostilepods
