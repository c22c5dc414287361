package awserrors

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/aws/smithy-go"
)

func TestBrief(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{fmt.Errorf("call ec2: %w", &smithy.GenericAPIError{Code: "ExpiredToken", Message: "of arn:aws:iam::1:role/x"}), "ExpiredToken"},
		{fmt.Errorf("call ec2: %w", context.DeadlineExceeded), "no answer"},
		{&net.OpError{Op: "dial", Err: errors.New("connection refused")}, "no connection"},
		{errors.New("the token is not in the pod, RequestID: 1-2-3"), "the token is not in the pod"},
		{errors.New(strings.Repeat("é", 100)), strings.Repeat("é", 60) + "..."},
	} {
		if got := Brief(tc.err); got != tc.want {
			t.Errorf("%v: %q, want %q", tc.err, got, tc.want)
		}
	}
}
