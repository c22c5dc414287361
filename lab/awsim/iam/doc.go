// Package iam simulates AWS Identity and Access Management: roles with their policies, managed policies, and instance
// profiles.
//
// Account decides what role sessions may do (see package policy), for the server if it enforces IAM.
// IAM's own eventual consistency is not simulated: a change is visible to the next call.
package iam
