package awserrors

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"testing"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

func apiError(code, message string) error {
	return fmt.Errorf("operation error EC2: %w", &smithy.GenericAPIError{Code: code, Message: message})
}

func TestKinds(t *testing.T) {
	for _, tc := range []struct {
		code, message string
		want          []Kind
	}{
		{"InvalidCapacityReservationId.NotFound", "", []Kind{NotFound}},
		{"InvalidInstanceID.NotFound", "", []Kind{NotFound}},
		{"InvalidLaunchTemplateName.NotFoundException", "", []Kind{NotFound, LaunchTemplateNotFound}},
		{"InvalidLaunchTemplateId.NotFound", "", []Kind{NotFound}},
		{"QueueDoesNotExist", "", []Kind{NotFound}},
		{"ExpiredToken", "", []Kind{BadCredentials}},
		{"AuthFailure", "AWS was not able to validate the provided access credentials", []Kind{BadCredentials}},
		{"AuthFailure", "Not authorized for images: [ami-1]", nil},
		{"NoSuchEntity", "Instance Profile x cannot be found.", []Kind{NotFound}},
		{"NoSuchEntity", "The role with name x cannot be found.", []Kind{NotFound, RoleNotFound}},
		{"ParameterNotFound", "", []Kind{NotFound}},
		{"EntityAlreadyExists", "", []Kind{AlreadyExists}},
		{"InvalidLaunchTemplateName.AlreadyExistsException", "", []Kind{AlreadyExists}},
		{"DryRunOperation", "", []Kind{DryRun}},
		{"UnauthorizedOperation", "", []Kind{Unauthorized}},
		{"AccessDenied", "", []Kind{Unauthorized}},
		{"AccessDeniedException", "", []Kind{Unauthorized}},
		{"RequestLimitExceeded", "", []Kind{RateLimited}},
		{"Throttling", "", []Kind{RateLimited}},
		{"ThrottlingException", "", []Kind{RateLimited}},
		{"IdempotentParameterMismatch", "", []Kind{TokenMismatch}},
		{
			"InvalidParameterValue", "Value (x) for parameter iamInstanceProfile.name: Invalid IAM Instance Profile name",
			[]Kind{InstanceProfileNotFound},
		},
		{"InvalidParameterValue", "something else", nil},
		{"InvalidUserData.Malformed", "User data is limited to 16384 bytes", []Kind{UserDataTooLarge}},
		{"InvalidUserData.Malformed", "not base64", nil},
		{"SomethingNew", "", nil},
	} {
		t.Run(tc.code+"/"+tc.message, func(t *testing.T) {
			err := apiError(tc.code, tc.message)
			want := map[Kind]bool{}
			for _, k := range tc.want {
				want[k] = true
			}
			for k := NotFound; k <= ServerFault; k++ {
				if Is(err, k) != want[k] {
					t.Errorf("kind %d: %v, want %v", k, Is(err, k), want[k])
				}
			}
			if Is(errors.New(tc.code), NotFound) {
				t.Error("an error that is no answer of AWS has a kind")
			}
		})
	}
}

func TestIsRetryable(t *testing.T) {
	for _, tc := range []struct {
		name string
		err  error
		want bool
	}{
		{"too many calls", apiError("RequestLimitExceeded", ""), true},
		{"AWS fails", fmt.Errorf("x: %w", &smithy.GenericAPIError{Code: "InternalError", Fault: smithy.FaultServer}), true},
		{"the network fails", &url.Error{Op: "Post", Err: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}}, true},
		{"a name does not resolve", &url.Error{Op: "Post", Err: &net.OpError{Op: "dial", Err: &net.DNSError{Name: "ec2.example.com"}}}, true},
		{"we are told to stop", &url.Error{Op: "Post", Err: context.Canceled}, false},
		{"not allowed", apiError("UnauthorizedOperation", ""), false},
		{"not there", apiError("ResourceNotFoundException", ""), false},
		{"no answer of AWS at all", errors.New("no credentials"), false},
	} {
		if got := IsRetryable(tc.err); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}

func TestIsRejected(t *testing.T) {
	response := func(status int, err error) error {
		return &smithyhttp.ResponseError{Response: &smithyhttp.Response{Response: &http.Response{StatusCode: status}}, Err: err}
	}
	for _, tc := range []struct {
		name string
		err  error
		want bool
	}{
		{"refused", response(400, apiError("InvalidParameterValue", "")), true},
		{"failure of EC2, which has no fault attribute", response(500, apiError("InternalError", "")), false},
		{"too many calls, which EC2 reports like a failure", response(503, apiError("RequestLimitExceeded", "")), true},
		{"no capacity, which EC2 reports like a failure", response(500, apiError("InsufficientInstanceCapacity", "")), true},
		{"failure with fault attribute", &smithy.GenericAPIError{Code: "X", Fault: smithy.FaultServer}, false},
		{"no answer that can be read", response(200, errors.New("unexpected EOF")), false},
		{"timeout", context.DeadlineExceeded, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := IsRejected(tc.err); got != tc.want {
				t.Errorf("definite is %v, want %v", got, tc.want)
			}
		})
	}
}

func TestReasons(t *testing.T) {
	for _, tc := range []struct{ text, want, hint string }{
		{
			"AuthFailure.ServiceLinkedRoleCreationNotPermitted: no", "SpotSLRCreationFailed",
			"the service-linked role of EC2 Spot is missing and may not be created",
		},
		{"UnauthorizedOperation: with an explicit deny in a permissions boundary", "Unauthorized", "denied by a permissions boundary"},
		{"AccessDenied: with an explicit deny in a service control policy", "Unauthorized", "denied by a service control policy"},
		{"AuthFailure: Not authorized for images: [ami-1]", "AMIAuthorizationFailure", "not authorized for the image"},
		{"UnauthorizedOperation: You are not authorized", "Unauthorized", "no identity-based policy allows it"},
		{
			"InvalidParameter: sg-1 and subnet-1 belong to different networks", "SecurityGroupSubnetVPCMismatch",
			"security groups and subnets are of different VPCs",
		},
		{"InvalidParameterValue: iamInstanceProfile.name is invalid", "InstanceProfileNameInvalid", ""},
		{"InvalidLaunchTemplateId.NotFound: gone", "LaunchTemplateNotFound", ""},
		{"InvalidUserData.Malformed: User data is limited to 16384 bytes", "UserDataSizeLimitExceeded", ""},
		{"InvalidAMIID.Malformed: x", "InvalidAMIID", ""},
		{"InvalidAMIID.NotFound: x", "AMINotFound", ""},
		{"RequestLimitExceeded: x", "RequestLimitExceeded", ""},
		{"InternalError: x", "InternalError", ""},
		{"InvalidParameterCombination: not eligible for Free Tier", "FreeTierIneligible", ""},
		{"MaxFleetCountExceeded: x", "FleetQuotaExceeded", ""},
		{"PendingVerification: x", "AccountPendingVerification", ""},
		{"MaxSpotInstanceCountExceeded: x", "SpotQuotaExceeded", ""},
		{"VcpuLimitExceeded: x", "VCPULimitExceeded", ""},
		{"InsufficientFreeAddressesInSubnet: x", "InsufficientFreeAddressesInSubnet", ""},
		{"something new", "LaunchFailed", ""},
	} {
		t.Run(tc.text, func(t *testing.T) {
			if got := ReasonOf(tc.text); got != (Reason{tc.want, tc.hint}) {
				t.Errorf("reason is %+v, want %q (%q)", got, tc.want, tc.hint)
			}
		})
	}
}

func TestUnfulfillable(t *testing.T) {
	for code, want := range map[string]bool{
		"InsufficientInstanceCapacity": true, "MaxSpotInstanceCountExceeded": true, "VcpuLimitExceeded": true,
		"UnfulfillableCapacity": true, "Unsupported": true, "InsufficientFreeAddressesInSubnet": true,
		"MaxFleetCountExceeded": true, "ReservationCapacityExceeded": true,
		"SpotMaxPriceTooLow": true, "InvalidCapacityReservationState.Unavailable": true, "InvalidCapacityReservationState.Other": false,
		"RequestLimitExceeded": false, "UnauthorizedOperation": false, SpotRoleDenied: false, "": false,
	} {
		if Unfulfillable(code) != want {
			t.Errorf("%q: unfulfillable is %v, want %v", code, !want, want)
		}
	}
}
