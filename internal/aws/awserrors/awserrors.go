// Package awserrors reads the errors of AWS: which kind of answer a code is, which fleet errors mean that
// capacity is scarce, and which reason of the condition Launched an error stands for.
//
// Everything is decided by tables, in the order in which they are written.
package awserrors

import (
	"context"
	"errors"
	"net"
	"strings"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// Kind is what an error means for the next step.
type Kind int

// The kinds of errors that callers tell apart.
const (
	// NotFound: the thing named in the call does not exist.
	NotFound Kind = iota + 1
	// LaunchTemplateNotFound: the launch template named in a fleet does not exist (any more).
	LaunchTemplateNotFound
	// AlreadyExists: a thing of this name is there.
	AlreadyExists
	// DryRun: the call would have been allowed.
	DryRun
	// Unauthorized: the caller may not do this.
	Unauthorized
	// RateLimited: too many calls; the same call may succeed later.
	RateLimited
	// TokenMismatch: the client token was used before, with other parameters.
	TokenMismatch
	// InstanceProfileNotFound: EC2 does not know the instance profile (yet).
	InstanceProfileNotFound
	// UserDataTooLarge: the user data exceeds EC2's limit of 16384 bytes.
	UserDataTooLarge
	// RoleNotFound: the role to put into an instance profile does not exist.
	RoleNotFound
	// ServerFault: AWS failed, not the caller.
	ServerFault
)

// rule matches an API error by its code and, if contains is set, by a part of its message.
type rule struct {
	kind     Kind
	code     string
	contains string
}

var rules = []rule{
	{NotFound, "InvalidCapacityReservationId.NotFound", ""},
	{NotFound, "InvalidInstanceID.NotFound", ""},
	{NotFound, "InvalidLaunchTemplateName.NotFoundException", ""},
	{NotFound, "InvalidLaunchTemplateId.NotFound", ""},
	{NotFound, "QueueDoesNotExist", ""},
	{NotFound, "NoSuchEntity", ""},
	{NotFound, "ParameterNotFound", ""},
	{LaunchTemplateNotFound, "InvalidLaunchTemplateName.NotFoundException", ""},
	{AlreadyExists, "EntityAlreadyExists", ""},
	{AlreadyExists, "InvalidLaunchTemplateName.AlreadyExistsException", ""},
	{DryRun, "DryRunOperation", ""},
	{Unauthorized, "UnauthorizedOperation", ""},
	{Unauthorized, "AccessDenied", ""},
	{Unauthorized, "AccessDeniedException", ""},
	{RateLimited, "RequestLimitExceeded", ""},
	{RateLimited, "Throttling", ""},
	{RateLimited, "ThrottlingException", ""},
	{TokenMismatch, "IdempotentParameterMismatch", ""},
	{InstanceProfileNotFound, "InvalidParameterValue", "Invalid IAM Instance Profile name"},
	{UserDataTooLarge, "InvalidUserData.Malformed", "User data is limited to"},
	{RoleNotFound, "NoSuchEntity", "role"},
}

// Is reports whether err is an answer of AWS of the given kind, wrapped or not.
func Is(err error, kind Kind) bool {
	var api smithy.APIError
	if !errors.As(err, &api) {
		return false
	}
	if kind == ServerFault {
		return isServerFault(err, api)
	}
	for _, r := range rules {
		if r.kind == kind && r.code == api.ErrorCode() && strings.Contains(api.ErrorMessage(), r.contains) {
			return true
		}
	}
	return false
}

// Code returns the API error code of err, or "" when AWS did not answer at all.
func Code(err error) string {
	var api smithy.APIError
	if !errors.As(err, &api) {
		return ""
	}
	return api.ErrorCode()
}

// Definite reports whether AWS itself refused the call, so that it certainly had no effect. A lost
// connection, a timeout or a failure of AWS leaves that open. EC2 reports a lack of capacity and too many calls
// with the status of a failure; they are none.
func IsRejected(err error) bool {
	var api smithy.APIError
	return errors.As(err, &api) && (!isServerFault(err, api) || Is(err, RateLimited) || Unfulfillable(api.ErrorCode()))
}

// Passing reports whether the same call may succeed later though nobody changes anything: there were too many calls, AWS
// failed, or the network did.
func Passing(err error) bool {
	var network net.Error
	return Is(err, RateLimited) || Is(err, ServerFault) || (errors.As(err, &network) && !errors.Is(err, context.Canceled))
}

// isServerFault looks at the HTTP status too, since EC2's protocol has no attribute for whose fault it was.
func isServerFault(err error, api smithy.APIError) bool {
	var response *smithyhttp.ResponseError
	return api.ErrorFault() == smithy.FaultServer || (errors.As(err, &response) && response.HTTPStatusCode() >= 500)
}

// SpotRoleDenied is the fleet error of an account in which the service-linked role of Spot is missing and may not be made.
const SpotRoleDenied = "AuthFailure.ServiceLinkedRoleCreationNotPermitted"

// SubnetFull is the fleet error of a subnet without a free address.
const SubnetFull = "InsufficientFreeAddressesInSubnet"

// ReservationFull is the fleet error of a capacity reservation without room.
const ReservationFull = "ReservationCapacityExceeded"

var unfulfillable = map[string]bool{
	"InsufficientInstanceCapacity": true,
	"MaxSpotInstanceCountExceeded": true,
	"VcpuLimitExceeded":            true,
	"UnfulfillableCapacity":        true,
	"Unsupported":                  true,
	SubnetFull:                     true,
	"MaxFleetCountExceeded":        true,
	ReservationFull:                true,
	// The spot price is above the on-demand price, which is the limit of a request that names none.
	"SpotMaxPriceTooLow": true,
	// The owner of an interruptible reservation is taking it back.
	"InvalidCapacityReservationState.Unavailable": true,
}

// Unfulfillable reports whether a fleet error code says that an offering cannot be had at the moment.
func Unfulfillable(code string) bool { return unfulfillable[code] }

// Reason is the reason of a failed launch, with words for people where the code alone does not say it.
type Reason struct {
	Code string
	Hint string
}

// LaunchFailed is the reason of an error that no row of the table knows.
const LaunchFailed = "LaunchFailed"

// reasons is searched in order; a row matches when one of any and all of all are in the error's text.
var reasons = []struct {
	any, all []string
	Reason
}{
	{all: []string{SpotRoleDenied}, Reason: Reason{"SpotSLRCreationFailed", "the service-linked role of EC2 Spot is missing and may not be created"}},
	{any: denied, all: []string{"with an explicit deny in a permissions boundary"}, Reason: Reason{"Unauthorized", "denied by a permissions boundary"}},
	{any: denied, all: []string{"with an explicit deny in a service control policy"}, Reason: Reason{"Unauthorized", "denied by a service control policy"}},
	{any: denied, all: []string{"Not authorized for images"}, Reason: Reason{"AMIAuthorizationFailure", "not authorized for the image"}},
	{any: denied, Reason: Reason{"Unauthorized", "no identity-based policy allows it"}},
	{all: []string{"InvalidParameter", "belong to different networks"}, Reason: Reason{"SecurityGroupSubnetVPCMismatch", "security groups and subnets are of different VPCs"}},
	{all: []string{"iamInstanceProfile.name is invalid"}, Reason: Reason{Code: "InstanceProfileNameInvalid"}},
	{all: []string{"InvalidLaunchTemplateId.NotFound"}, Reason: Reason{Code: "LaunchTemplateNotFound"}},
	{all: []string{"User data is limited to"}, Reason: Reason{Code: "UserDataSizeLimitExceeded"}},
	{all: []string{"InvalidAMIID.Malformed"}, Reason: Reason{Code: "InvalidAMIID"}},
	{all: []string{"InvalidAMIID.NotFound"}, Reason: Reason{Code: "AMINotFound"}},
	{all: []string{"RequestLimitExceeded"}, Reason: Reason{Code: "RequestLimitExceeded"}},
	{all: []string{"InternalError"}, Reason: Reason{Code: "InternalError"}},
	{all: []string{"not eligible for Free Tier"}, Reason: Reason{Code: "FreeTierIneligible"}},
	{all: []string{"MaxFleetCountExceeded"}, Reason: Reason{Code: "FleetQuotaExceeded"}},
	{all: []string{"PendingVerification"}, Reason: Reason{Code: "AccountPendingVerification"}},
	{all: []string{"MaxSpotInstanceCountExceeded"}, Reason: Reason{Code: "SpotQuotaExceeded"}},
	{all: []string{"VcpuLimitExceeded"}, Reason: Reason{Code: "VCPULimitExceeded"}},
	{all: []string{SubnetFull}, Reason: Reason{Code: SubnetFull}},
}

var denied = []string{"UnauthorizedOperation", "AccessDenied", "AuthFailure"}

// ReasonOf derives the reason of a failed launch from the whole text of an error; the first row that matches wins.
func ReasonOf(text string) Reason {
	contains := func(part string) bool { return strings.Contains(text, part) }
	for _, r := range reasons {
		if matches(r.any, r.all, contains) {
			return r.Reason
		}
	}
	return Reason{Code: LaunchFailed}
}

func matches(some, all []string, contains func(string) bool) bool {
	for _, part := range all {
		if !contains(part) {
			return false
		}
	}
	for _, part := range some {
		if contains(part) {
			return true
		}
	}
	return len(some) == 0
}
