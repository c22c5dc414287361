package awsim

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

// FaultHelp explains the form of a fault to people.
const FaultHelp = `CALL=ERROR[,OPTION...], pool:TYPE/ZONE/LIFECYCLE=N|ERROR, or quota:LIFECYCLE/CLASS=VCPUS

CALL is SERVICE.ACTION, with * for any, or for the rest of a name: ec2.CreateFleet, ec2.Describe*, ssm.*, *
ERROR is an error code of AWS, such as RequestLimitExceeded, or one of
  lost   the call takes effect, but the response is an internal error
  drop   the call takes effect, but the connection closes without a response
  slow   the response is late
  hang   the connection stays open, and no response comes
  refuse the connection closes at once, and the call has no effect
OPTION is one of
  times=N       the first N calls only
  for=30s       the calls within this time from now
  by=ROLE       the calls of principals with this in their ARN only
  share=0.1     a tenth of the calls, at random
  delay=2s      additional delay of the response
  status=503    the HTTP status
  message=TEXT  the error message; must be the last option, since it may contain commas

pool: limits a capacity pool to N instances, or lets launches from it fail: pool:m5.large/us-east-1a/spot=0,
pool:*/us-east-1b/*=InsufficientInstanceCapacity. LIFECYCLE is spot or on-demand.

quota: limits the running vCPUs: quota:on-demand/standard=64. CLASS is standard (families A, C, D, H, I, M, R, T,
Z), dl, f, g, hpc, inf, p, trn, u or x.`

// statuses of errors that are not the caller's.
var statuses = map[string]int{
	"RequestLimitExceeded": http.StatusServiceUnavailable, "Unavailable": http.StatusServiceUnavailable,
	"ServiceUnavailable": http.StatusServiceUnavailable,
	"InternalError":      http.StatusInternalServerError, "InternalFailure": http.StatusInternalServerError,
	"InsufficientInstanceCapacity": http.StatusInternalServerError, "InsufficientCapacity": http.StatusInternalServerError,
	"UnauthorizedOperation": http.StatusForbidden, "AccessDenied": http.StatusForbidden,
}

func apiError(code string) *protocol.Error {
	message := map[string]string{
		"RequestLimitExceeded": "Request limit exceeded.", "InternalError": "An internal error has occurred",
		"UnauthorizedOperation": "You are not authorized to perform this operation.",
	}[code]
	return &protocol.Error{
		Code:    code,
		Message: cmp.Or(message, "An injected fault."),
		Status:  cmp.Or(statuses[code], http.StatusBadRequest),
	}
}

// InjectSpec injects a fault given in the syntax of FaultHelp.
func (s *Sim) InjectSpec(spec string) error {
	target, what, ok := strings.Cut(spec, "=")
	if !ok || target == "" || what == "" {
		return fmt.Errorf("fault %q: CALL=ERROR is expected", spec)
	}
	var err error
	kind, name, _ := strings.Cut(target, ":")
	switch kind {
	case "pool":
		err = s.injectPoolSpec(name, what)
	case "quota":
		err = s.setQuota(name, what)
	default:
		err = s.injectCallSpec(target, what)
	}
	if err != nil {
		return fmt.Errorf("fault %q: %w", spec, err)
	}
	return nil
}

func (s *Sim) injectPoolSpec(name, what string) error {
	parts := strings.Split(name, "/")
	if len(parts) != 3 {
		return errors.New("a pool is TYPE/ZONE/LIFECYCLE")
	}
	for i, part := range parts {
		if part == "*" {
			parts[i] = ""
		}
	}
	if l := parts[2]; l != "" && l != "spot" && l != "on-demand" {
		return fmt.Errorf("lifecycle %q is neither spot nor on-demand", l)
	}
	pool := Pool{InstanceType: parts[0], Zone: parts[1], Lifecycle: parts[2]}
	if n, err := strconv.Atoi(what); err == nil {
		if n < 0 {
			return fmt.Errorf("%d instances", n)
		}
		s.SetCapacity(pool, n)
		return nil
	}
	if strings.ContainsAny(what, ",= ") {
		return errors.New("a pool has a number or an error code, and no options")
	}
	s.FailPool(pool, apiError(what))
	return nil
}

func (s *Sim) setQuota(name, what string) error {
	lifecycle, class, _ := strings.Cut(name, "/")
	vcpus, err := strconv.Atoi(what)
	if err != nil || vcpus < 0 {
		return fmt.Errorf("%q is not a number of vCPUs", what)
	}
	return s.ec2.SetQuota(lifecycle, class, vcpus)
}

func (s *Sim) injectCallSpec(target, what string) error {
	fault := Fault{}
	if target != "*" {
		service, action, ok := strings.Cut(target, ".")
		if !ok || service == "" || action == "" {
			return errors.New("a call is SERVICE.ACTION, or *")
		}
		if !s.server.Serves(service, action) {
			return fmt.Errorf("the account has no %s", target)
		}
		fault.Service = service
		if action != "*" {
			fault.Action = action
		}
	}
	kind, options, _ := strings.Cut(what, ",")
	switch kind {
	case "lost":
		fault.Error, fault.AfterEffect = apiError("InternalError"), true
	case "drop":
		fault.Error, fault.AfterEffect, fault.Drop = apiError("InternalError"), true, true
	case "slow":
		fault.Delay = time.Second
	case "refuse":
		fault.Error, fault.Drop = apiError("InternalError"), true
	case "hang":
		fault.Error, fault.Drop, fault.Delay = apiError("InternalError"), true, protocol.Hang
	default:
		fault.Error = apiError(kind)
	}
	return s.arm(fault, options)
}

// arm applies the options of a fault and arms it.
func (s *Sim) arm(fault Fault, options string) error {
	share := 1.0
	fault.Times = protocol.Always
	for options != "" {
		var option string
		if strings.HasPrefix(options, "message=") {
			option, options = options, ""
		} else {
			option, options, _ = strings.Cut(options, ",")
		}
		name, value, _ := strings.Cut(option, "=")
		var err error
		switch name {
		case "times":
			if fault.Times, err = strconv.Atoi(value); err == nil && fault.Times < 1 {
				err = errors.New("at least one")
			}
		case "share":
			if share, err = strconv.ParseFloat(value, 64); err == nil && (share <= 0 || share > 1) {
				err = errors.New("more than 0, 1 at most")
			}
		case "delay":
			fault.Delay, err = time.ParseDuration(value)
		case "by":
			fault.Principal = value
		case "for":
			if fault.For, err = time.ParseDuration(value); err == nil && fault.For <= 0 {
				err = errors.New("more than 0")
			}
		case "status", "message":
			if fault.Error == nil {
				return fmt.Errorf("%s: there is no error", name)
			}
			if name == "message" {
				fault.Error.Message = value
			} else if fault.Error.Status, err = strconv.Atoi(value); err == nil && (fault.Error.Status < 400 || fault.Error.Status > 599) {
				err = errors.New("400 to 599")
			}
		default:
			return fmt.Errorf("unknown option %q", option)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", option, err)
		}
	}
	fault.Share = share
	s.Inject(fault)
	return nil
}
