package awserrors

import (
	"errors"
	"testing"

	"github.com/aws/smithy-go"
)

func TestWithoutRequestIDs(t *testing.T) {
	denied := &smithy.GenericAPIError{Code: "UnauthorizedOperation", Message: "You are not authorized, ask an admin."}
	err := &smithy.OperationError{
		ServiceID:     "EC2",
		OperationName: "CreateFleet",
		Err:           errors.Join(errors.New("https response error StatusCode: 403, RequestID: 1f3c-77, HostID: abc=, end"), denied),
	}
	const want = "operation error EC2: CreateFleet, https response error StatusCode: 403, end\napi error UnauthorizedOperation: You are not authorized, ask an admin."
	if got := WithoutRequestIDs(err).Error(); got != want {
		t.Errorf("text %q, want %q", got, want)
	}
	if !Is(WithoutRequestIDs(err), Unauthorized) {
		t.Error("a plain error is no longer what it was")
	}
	if WithoutRequestIDs(nil) != nil {
		t.Error("no error became one")
	}
}

// EC2 enciphers why it refuses a call anew each time. What is written down about it must not change each time.
func TestWithoutEncodedAuthorizationMessage(t *testing.T) {
	refused := func(cipher string) error {
		return &smithy.GenericAPIError{
			Code:    "UnauthorizedOperation",
			Message: "You are not authorized to perform this operation. User: u is not authorized to perform: ec2:GetConsoleOutput because no identity-based policy allows the ec2:GetConsoleOutput action. Encoded authorization failure message: " + cipher,
		}
	}
	const want = "api error UnauthorizedOperation: You are not authorized to perform this operation. User: u is not authorized to perform: ec2:GetConsoleOutput because no identity-based policy allows the ec2:GetConsoleOutput action."
	for _, cipher := range []string{"r7u_Zk-4wQ", "AAEC-9fQ_x0"} {
		if got := WithoutRequestIDs(refused(cipher)).Error(); got != want {
			t.Errorf("text %q, want %q", got, want)
		}
	}
}
