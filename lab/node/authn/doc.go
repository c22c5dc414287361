// Package authn is the authenticator of an EKS cluster: it turns the IAM identity behind a bearer
// token into a Kubernetes user, and serves the answer to the API server as a TokenReview webhook.
//
// A token is "k8s-aws-v1." and, in base64, a presigned URL of sts:GetCallerIdentity in which the
// header x-k8s-aws-id (the cluster's name) is signed. The authenticator calls that URL, so STS states
// who signed it; then it looks the role up in the places that the cluster's authentication mode
// names: the EKS access entries, the aws-auth ConfigMap, or first one and then the other. Anyone who is
// in neither stays unauthenticated, and the API server answers 401.
package authn
