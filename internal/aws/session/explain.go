package session

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/dovetail-k8s/dovetail/internal/aws/awserrors"
)

// Call is an API call, as IAM names it: ec2 and DescribeInstanceTypes.
type Call struct {
	Service, Action string
	// Otherwise holds what to do where the call cannot be allowed; empty if it must be.
	Otherwise string
}

// unknownKeys are the error codes for credentials that AWS does not know.
var unknownKeys = []string{
	"AuthFailure",
	"InvalidClientTokenId",
	"UnrecognizedClientException",
	"InvalidAccessKeyId",
	"IncompleteSignature",
}

// lateKeys are the error codes for signatures and credentials that have expired.
var lateKeys = []string{"RequestExpired", "ExpiredToken", "ExpiredTokenException", "RequestTimeTooSkewed"}

// Explain adds advice to the error of a call: what to allow, to set, or to make reachable.
func Explain(call Call, region string, err error) error {
	if err == nil {
		return nil
	}
	return &advised{fmt.Sprintf("call %s:%s", call.Service, call.Action), err, advice(call, region, err)}
}

func advice(call Call, region string, err error) string {
	code := awserrors.Code(err)
	var unreachable net.Error
	var request *url.Error
	switch {
	case awserrors.Is(err, awserrors.Unauthorized):
		text := fmt.Sprintf(
			"the controller's role lacks the permission: allow %s:%s, as in the policy that `dovetail iam-policy` prints",
			call.Service,
			call.Action,
		)
		if call.Otherwise != "" {
			text += ", or " + call.Otherwise
		}
		return text
	case slices.Contains(unknownKeys, code):
		return fmt.Sprintf(
			"AWS does not know these credentials in %s: are they of another partition, or is the region not enabled in the account?",
			region,
		)
	case slices.Contains(lateKeys, code),
		code == "SignatureDoesNotMatch" && (strings.Contains(err.Error(), "expired") || strings.Contains(err.Error(), "not yet current")):
		return "the credentials have expired, or the clock of this host is wrong"
	case code == "OptInRequired":
		return fmt.Sprintf("the account has not enabled %s in %s", call.Service, region)
	case code != "":
		return ""
	case errors.As(err, &unreachable) || errors.As(err, &request):
		return fmt.Sprintf(
			"%s does not respond: the pod needs a route to the internet, or the VPC the endpoint com.amazonaws.%s.%s; AWS_REGION must be the cluster's",
			call.Service,
			region,
			call.Service,
		)
	}
	return ""
}
