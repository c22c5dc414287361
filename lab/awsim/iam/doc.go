// Package iam simulates AWS Identity and Access Management: roles with their policies, and instance profiles.
//
// Policies are kept as the documents that were given, so that an evaluator can be put on top; nothing is evaluated
// here. IAM's own eventual consistency is not simulated: a change is visible to the next call.
package iam
