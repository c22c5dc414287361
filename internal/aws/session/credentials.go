package session

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/dovetail-k8s/dovetail/internal/aws/awserrors"
)

// advised is an error with advice what to do about it.
type advised struct {
	what   string
	err    error
	advice string
}

func (e *advised) Error() string {
	text := fmt.Sprintf("%s: %v", e.what, awserrors.WithoutRequestIDs(e.err))
	if e.advice != "" {
		text += ": " + e.advice
	}
	return text
}

func (e *advised) Unwrap() error { return e.err }

// explainCredentials names the source of credentials that was tried, and what that source needs.
func explainCredentials(err error, getenv func(string) string) error {
	switch {
	case getenv("AWS_ACCESS_KEY_ID") != "":
		return &advised{"AWS credentials of the environment", err, "set AWS_SECRET_ACCESS_KEY, too"}
	case getenv("AWS_WEB_IDENTITY_TOKEN_FILE") != "":
		return &advised{"AWS credentials by the role of the service account", err, webIdentityAdvice(err, getenv)}
	case getenv("AWS_CONTAINER_CREDENTIALS_FULL_URI") != "" || getenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") != "":
		return &advised{"AWS credentials by EKS Pod Identity", err, podIdentityAdvice(err, getenv)}
	case getenv("AWS_PROFILE") != "":
		return &advised{fmt.Sprintf("AWS credentials of the profile %q", getenv("AWS_PROFILE")), err, ""}
	}
	return &advised{"AWS credentials", err, "none are in the environment, and the instance metadata service returns none. " +
		"In a cluster either annotate the service account with eks.amazonaws.com/role-arn, " +
		"or create a pod identity association for it, and restart the pod"}
}

func webIdentityAdvice(err error, getenv func(string) string) string {
	role := cmp.Or(getenv("AWS_ROLE_ARN"), "of AWS_ROLE_ARN, which is not set,")
	issuer, subject := identityOf(getenv("AWS_WEB_IDENTITY_TOKEN_FILE"))
	switch {
	case missing(getenv("AWS_WEB_IDENTITY_TOKEN_FILE")):
		return "the service account's token is not in the pod: restart the pod, so that the webhook of EKS can add it"
	case awserrors.Is(err, awserrors.Unauthorized):
		return fmt.Sprintf(
			"the trust policy of role %s must allow sts:AssumeRoleWithWebIdentity to %s of the OIDC provider %s, with the audience sts.amazonaws.com",
			role,
			subject,
			issuer,
		)
	case awserrors.Code(err) == "InvalidIdentityToken" || awserrors.Code(err) == "InvalidIdentityTokenException":
		return fmt.Sprintf("IAM must have an OIDC provider for %s, the issuer of this cluster", issuer)
	case awserrors.Code(err) == "":
		return "STS does not respond: a VPC without a route to the internet needs the VPC endpoint sts"
	}
	return ""
}

func podIdentityAdvice(err error, getenv func(string) string) string {
	_, subject := identityOf(getenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"))
	switch text := err.Error(); {
	case missing(getenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")):
		return "the service account's token is not in the pod: restart the pod, so that EKS can add it"
	case strings.Contains(text, "ResourceNotFoundException"):
		return fmt.Sprintf("create a pod identity association of %s with the role of the controller", subject)
	case strings.Contains(text, "AccessDenied"):
		return "the trust policy of the associated role must allow sts:AssumeRole and sts:TagSession to pods.eks.amazonaws.com"
	}
	return "the agent does not respond correctly: the add-on eks-pod-identity-agent must run on this node"
}

// missing reports whether a file that is configured does not exist. The SDK's own error does not.
func missing(file string) bool {
	_, err := os.Stat(file)
	return file != "" && errors.Is(err, fs.ErrNotExist)
}

// identityOf reads issuer and subject of a service account's token, to name them in errors. It does not verify the token.
func identityOf(file string) (issuer, subject string) {
	issuer, subject = "of the cluster", "this service account"
	token, err := os.ReadFile(file)
	if err != nil {
		return issuer, subject
	}
	parts := strings.Split(strings.TrimSpace(string(token)), ".")
	if len(parts) != 3 {
		return issuer, subject
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return issuer, subject
	}
	var claims struct {
		Issuer  string `json:"iss"`
		Subject string `json:"sub"`
	}
	if json.Unmarshal(payload, &claims) != nil {
		return issuer, subject
	}
	return cmp.Or(claims.Issuer, issuer), cmp.Or(claims.Subject, subject)
}
