package fault

import (
	"errors"
	"testing"

	"github.com/aws/smithy-go"
)

func TestPlain(t *testing.T) {
	denied := &smithy.GenericAPIError{Code: "UnauthorizedOperation", Message: "You are not authorized, ask an admin."}
	err := &smithy.OperationError{ServiceID: "EC2", OperationName: "CreateFleet", Err: errors.Join(errors.New("https response error StatusCode: 403, RequestID: 1f3c-77, HostID: abc=, end"), denied)}
	const want = "operation error EC2: CreateFleet, https response error StatusCode: 403, end\napi error UnauthorizedOperation: You are not authorized, ask an admin."
	if got := Plain(err).Error(); got != want {
		t.Errorf("text %q, want %q", got, want)
	}
	if !Is(Plain(err), Unauthorized) {
		t.Error("a plain error is no longer what it was")
	}
	if Plain(nil) != nil {
		t.Error("no error became one")
	}
}
