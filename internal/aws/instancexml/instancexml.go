// Package instancexml decodes what DescribeInstances answers, as far as controllers use it.
//
// EC2 describes an instance in some 150 elements, of which controllers use a third. The SDK decodes all of them, and every element of an
// answer allocates several times. For 5,000 instances that takes most of a second of CPU time, and a third of all that a controller
// allocates which has nothing else to do.
package instancexml

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
	smithytime "github.com/aws/smithy-go/time"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// ErrNotDecoded means that a response was not decoded. The SDK may decode it: make the call again, without Lean.
var ErrNotDecoded = errors.New("the response of DescribeInstances is not as expected")

// Lean returns an option for calls of DescribeInstances. With it, instances have only the fields that Fields keeps. Equal texts are shared
// by all instances of the calls with this option, and must not be changed. It is for one call after another, such as the pages of a list.
func Lean() func(*ec2.Options) {
	texts := texts{}
	return func(o *ec2.Options) {
		o.APIOptions = append(o.APIOptions, func(stack *middleware.Stack) error {
			lean := &deserializer{texts: texts}
			full, err := stack.Deserialize.Swap(lean.ID(), lean)
			lean.full = full
			return err
		})
	}
}

// deserializer is the step of a call that decodes the response.
type deserializer struct {
	texts texts
	// full is the SDK's, which decodes errors.
	full middleware.DeserializeMiddleware
}

// ID implements middleware.DeserializeMiddleware. It is that of the SDK's step.
func (*deserializer) ID() string { return "OperationDeserializer" }

// HandleDeserialize implements middleware.DeserializeMiddleware.
func (d *deserializer) HandleDeserialize(ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler) (
	out middleware.DeserializeOutput, metadata middleware.Metadata, err error,
) {
	out, metadata, err = next.HandleDeserialize(ctx, in)
	response, isHTTP := out.RawResponse.(*smithyhttp.Response)
	if err != nil || !isHTTP || response.StatusCode < 200 || response.StatusCode >= 300 {
		return d.full.HandleDeserialize(ctx, in, answer{out, metadata, err})
	}
	defer func() { smithyhttp.CloseResponseBody(ctx, response, false, err) }()
	output, err := decode(response.Body, d.texts)
	if err != nil {
		return out, metadata, &smithy.DeserializationError{Err: fmt.Errorf("%w: %w", ErrNotDecoded, err)}
	}
	out.Result = output
	return out, metadata, nil
}

// answer is a step that has been made.
type answer struct {
	out      middleware.DeserializeOutput
	metadata middleware.Metadata
	err      error
}

// HandleDeserialize implements middleware.DeserializeHandler.
func (a answer) HandleDeserialize(context.Context, middleware.DeserializeInput) (
	middleware.DeserializeOutput, middleware.Metadata, error,
) {
	return a.out, a.metadata, a.err
}

// texts has one copy of each text.
type texts map[string]*string

func (t texts) share(text []byte) *string {
	if known, found := t[string(text)]; found {
		return known
	}
	copied := string(text)
	t[copied] = &copied
	return &copied
}

// decoder decodes one response.
type decoder struct {
	*scanner
	texts texts
}

// decode decodes a response with instances.
func decode(body io.Reader, texts texts) (*ec2.DescribeInstancesOutput, error) {
	d := decoder{newScanner(body), texts}
	out := &ec2.DescribeInstancesOutput{}
	if name, err := d.root(); err != nil || string(name) != "DescribeInstancesResponse" {
		return nil, errors.Join(err, errUnusual)
	}
	return out, d.each(responseFields, func(f field) (err error) {
		switch f {
		case nextToken:
			out.NextToken, err = d.string()
		case reservationSet:
			err = d.items(func() error {
				out.Reservations = append(out.Reservations, ec2types.Reservation{})
				return d.reservation(&out.Reservations[len(out.Reservations)-1])
			})
		}
		return err
	})
}

func (d decoder) reservation(out *ec2types.Reservation) error {
	return d.each(reservationFields, func(field) error {
		return d.items(func() error {
			out.Instances = append(out.Instances, ec2types.Instance{})
			return d.instance(&out.Instances[len(out.Instances)-1])
		})
	})
}

func (d decoder) instance(out *ec2types.Instance) error {
	return d.each(instanceFields, func(f field) (err error) {
		switch f {
		case instanceID:
			out.InstanceId, err = d.string()
		case imageID:
			out.ImageId, err = d.string()
		case subnetID:
			out.SubnetId, err = d.string()
		case spotInstanceRequestID:
			out.SpotInstanceRequestId, err = d.string()
		case capacityReservationID:
			out.CapacityReservationId, err = d.string()
		case instanceType:
			err = text(d, &out.InstanceType)
		case instanceLifecycle:
			err = text(d, &out.InstanceLifecycle)
		case launchTime:
			err = d.launchTime(out)
		case instanceState:
			err = d.state(ensure(&out.State))
		case placement:
			err = d.placement(ensure(&out.Placement))
		case capacityReservationSpecification:
			err = d.reservationSpecification(ensure(&out.CapacityReservationSpecification))
		case groupSet:
			err = d.items(func() error {
				out.SecurityGroups = append(out.SecurityGroups, ec2types.GroupIdentifier{})
				return d.group(&out.SecurityGroups[len(out.SecurityGroups)-1])
			})
		case tagSet:
			err = d.items(func() error {
				out.Tags = append(out.Tags, ec2types.Tag{})
				return d.tag(&out.Tags[len(out.Tags)-1])
			})
		}
		return err
	})
}

// ensure returns what a pointer points to: an element that is repeated adds to the first.
func ensure[T any](p **T) *T {
	if *p == nil {
		*p = new(T)
	}
	return *p
}

func (d decoder) launchTime(out *ec2types.Instance) error {
	text, err := d.value()
	if err != nil {
		return err
	}
	at, err := smithytime.ParseDateTime(string(text))
	out.LaunchTime = &at
	return err
}

func (d decoder) state(out *ec2types.InstanceState) error {
	return d.each(stateFields, func(field) error { return text(d, &out.Name) })
}

func (d decoder) placement(out *ec2types.Placement) error {
	return d.each(placementFields, func(f field) (err error) {
		switch f {
		case availabilityZone:
			out.AvailabilityZone, err = d.string()
		case availabilityZoneID:
			out.AvailabilityZoneId, err = d.string()
		case groupID:
			out.GroupId, err = d.string()
		case tenancy:
			err = text(d, &out.Tenancy)
		case partitionNumber:
			out.PartitionNumber, err = d.number()
		}
		return err
	})
}

func (d decoder) reservationSpecification(out *ec2types.CapacityReservationSpecificationResponse) error {
	return d.each(specificationFields, func(field) error { return text(d, &out.CapacityReservationPreference) })
}

func (d decoder) group(out *ec2types.GroupIdentifier) error {
	return d.each(groupFields, func(field) (err error) {
		out.GroupId, err = d.string()
		return err
	})
}

func (d decoder) tag(out *ec2types.Tag) error {
	return d.each(tagFields, func(f field) (err error) {
		switch f {
		case key:
			out.Key, err = d.string()
		case value:
			out.Value, err = d.string()
		}
		return err
	})
}

// each calls do for each element in the open one that is among the fields, and leaves it.
func (d decoder) each(known fields, do func(field) error) error {
	for {
		name, found, err := d.next()
		if err != nil || !found {
			return err
		}
		f, err := known.find(name)
		switch {
		case err != nil:
		case f == none:
			err = d.skip()
		default:
			err = do(f)
		}
		if err != nil {
			return err
		}
	}
}

// items calls do for each element of the open list, and leaves it.
func (d decoder) items(do func() error) error {
	return d.each(listFields, func(field) error { return do() })
}

// string is the text of the open element.
func (d decoder) string() (*string, error) {
	text, err := d.value()
	if err != nil {
		return nil, err
	}
	return d.texts.share(text), nil
}

// text stores the text of the open element.
func text[T ~string](d decoder, to *T) error {
	shared, err := d.string()
	if err != nil {
		return err
	}
	*to = T(*shared)
	return nil
}

// number is the number in the open element.
func (d decoder) number() (*int32, error) {
	text, err := d.value()
	if err != nil {
		return nil, err
	}
	n, err := strconv.ParseInt(string(text), 10, 32)
	out := int32(n)
	return &out, err
}
