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
	// Otherwise is what to do where the call cannot be allowed; empty if it must be.
	Otherwise string
}

// unknownKeys are the codes with which AWS says that it does not know who signed.
var unknownKeys = []string{"AuthFailure", "InvalidClientTokenId", "UnrecognizedClientException", "InvalidAccessKeyId", "IncompleteSignature"}

// lateKeys are the codes for signatures and credentials of another time.
var lateKeys = []string{"RequestExpired", "ExpiredToken", "ExpiredTokenException", "RequestTimeTooSkewed"}

// Explain adds to the error of a call what to do about it: what must be allowed, set or reached.
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
		text := fmt.Sprintf("the controller's role may not do that: allow %s:%s, as the policy does that `dovetail iam-policy` prints", call.Service, call.Action)
		if call.Otherwise != "" {
			text += ", or " + call.Otherwise
		}
		return text
	case slices.Contains(unknownKeys, code):
		return fmt.Sprintf("AWS does not know these credentials in %s: are they of another partition, or is the region not enabled in the account?", region)
	case slices.Contains(lateKeys, code), code == "SignatureDoesNotMatch" && (strings.Contains(err.Error(), "expired") || strings.Contains(err.Error(), "not yet current")):
		return "the credentials have expired, or this machine's clock is wrong"
	case code == "OptInRequired":
		return fmt.Sprintf("the account has not enabled %s in %s", call.Service, region)
	case code != "":
		return ""
	case errors.As(err, &unreachable) || errors.As(err, &request):
		return fmt.Sprintf("%s does not answer: the pod needs a way to the internet, or the VPC the endpoint com.amazonaws.%s.%s; AWS_REGION must be the cluster's", call.Service, region, call.Service)
	}
	return ""
}
