package image

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	corev1 "k8s.io/api/core/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/awserrors"
	"github.com/dovetail-k8s/dovetail/internal/aws/network"
	"github.com/dovetail-k8s/dovetail/internal/aws/ttlcache"
)

// Image is an AMI with the requirements of instance types that can boot it.
type Image struct {
	ID         string
	Name       string
	CreatedAt  time.Time // zero if unknown
	Deprecated bool
	// Requirements are sorted by the length of the key, then by key.
	Requirements []corev1.NodeSelectorRequirement
}

// Parameters is the calls of SSM that Finder makes.
type Parameters interface {
	GetParameter(ctx context.Context, in *ssm.GetParameterInput, optFns ...func(*ssm.Options)) (*ssm.GetParameterOutput, error)
}

const (
	pageSize = 1000
	// aliasTTL and customParameterTTL are how long the value of an SSM parameter is used. Parameters behind aliases
	// change rarely; users may edit their own at any time.
	aliasTTL           = 24 * time.Hour
	customParameterTTL = 5 * time.Minute
)

// Finder finds images. The caller makes the cache key from the node class, its generation and the version of
// Kubernetes.
type Finder struct {
	images ec2.DescribeImagesAPIClient
	ssm    Parameters
	now    func() time.Time

	found  *ttlcache.Cache[string, []Image]
	values *ttlcache.Cache[string, string]
}

// NewFinder returns a Finder that caches images for the interval.
func NewFinder(images ec2.DescribeImagesAPIClient, parameters Parameters, interval time.Duration, now func() time.Time) *Finder {
	return &Finder{
		images: images,
		ssm:    parameters,
		now:    now,
		found:  ttlcache.New[string, []Image](interval, now),
		values: ttlcache.New[string, string](aliasTTL, now),
	}
}

// query is one DescribeImages call. variants has the hardware by image ID; it is nil for images without an alias, and
// then their architecture alone decides.
type query struct {
	input    ec2.DescribeImagesInput
	variants map[string][]variant
	// parameters has the names of the mutable parameters by image ID.
	parameters map[string][]string
}

// Images returns the best image for each kind of hardware that the terms select, newest first. version is the minor
// version of Kubernetes for which an alias is resolved. The error is an *UnsupportedAliasError if only an edit of the
// alias can help.
func (f *Finder) Images(ctx context.Context, key string, terms []awsv1.AMISelectorTerm, version string) ([]Image, error) {
	if found, ok := f.found.Get(key); ok {
		return found, nil
	}
	queries, err := f.queries(ctx, terms, version)
	if err != nil {
		return nil, err
	}
	var all []Image
	for _, q := range queries {
		images, err := f.describe(ctx, q)
		if err != nil {
			return nil, err
		}
		f.forgetDeprecated(q, images)
		all = append(all, images...)
	}
	best := Best(all)
	f.found.Set(key, best)
	return best, nil
}

// forgetDeprecated removes parameters with a deprecated image from the cache, so that the next call finds its
// successor.
func (f *Finder) forgetDeprecated(q query, images []Image) {
	for _, i := range images {
		if i.Deprecated {
			for _, name := range q.parameters[i.ID] {
				f.values.Delete(name)
			}
		}
	}
}

func (f *Finder) queries(ctx context.Context, terms []awsv1.AMISelectorTerm, version string) ([]query, error) {
	var queries []query
	var ids []string
	for _, term := range terms {
		switch {
		case term.Alias != "":
			q, err := f.alias(ctx, term.Alias, version)
			if err != nil {
				return nil, err
			}
			queries = append(queries, q)
		case term.ID != "":
			ids = append(ids, term.ID)
		case term.SSMParameter != "":
			id, err := f.parameter(ctx, term.SSMParameter, customParameterTTL)
			if err != nil && !awserrors.Is(err, awserrors.NotFound) {
				return nil, err
			}
			if strings.HasPrefix(id, "ami-") {
				ids = append(ids, id)
			}
		default:
			queries = append(queries, byNameOrTags(term))
		}
	}
	if len(ids) > 0 {
		queries = append(queries, query{input: ec2.DescribeImagesInput{Filters: network.Query{network.Filter("image-id", ids...)}}})
	}
	return queries, nil
}

func byNameOrTags(term awsv1.AMISelectorTerm) query {
	q := query{input: ec2.DescribeImagesInput{Filters: network.TagFilters(term.Tags)}}
	if term.Owner != "" {
		q.input.Owners = []string{term.Owner}
	}
	if term.Name != "" {
		q.input.Filters = append(q.input.Filters, network.Filter("name", term.Name))
		if term.Owner == "" {
			q.input.Owners = []string{"self", "amazon"}
		}
	}
	return q
}

// alias reads the images behind an alias from SSM. It skips missing parameters and parameters without access: not every
// family has an image for all hardware. If SSM did not respond, it returns the error.
func (f *Finder) alias(ctx context.Context, alias, version string) (query, error) {
	parameters, err := aliasParameters(alias, version)
	if err != nil {
		return query{}, err
	}
	q := query{variants: map[string][]variant{}, parameters: map[string][]string{}}
	var ids []string
	var missing error
	for _, p := range parameters {
		id, err := f.parameter(ctx, p.name, aliasTTL)
		if err != nil && (!awserrors.IsRejected(err) || awserrors.Is(err, awserrors.RateLimited)) {
			return query{}, err
		}
		if err != nil {
			missing = err
			continue
		}
		if _, seen := q.variants[id]; !seen {
			ids = append(ids, id)
		}
		q.variants[id] = append(q.variants[id], p.variants...)
		if p.mutable {
			q.parameters[id] = append(q.parameters[id], p.name)
		}
	}
	if len(ids) == 0 && awserrors.Is(missing, awserrors.NotFound) {
		// Without the error of AWS: it contains a request ID, and the condition must not change each time.
		return query{}, &UnsupportedAliasError{alias, version, "there are no images of this version; name one that exists, or latest"}
	}
	if len(ids) == 0 {
		return query{}, fmt.Errorf("no image for alias %s on Kubernetes %s: %w", alias, version, missing)
	}
	q.input.Filters = network.Query{network.Filter("image-id", ids...)}
	return q, nil
}

func (f *Finder) parameter(ctx context.Context, name string, kept time.Duration) (string, error) {
	if value, ok := f.values.Get(name); ok {
		return value, nil
	}
	out, err := f.ssm.GetParameter(ctx, &ssm.GetParameterInput{Name: aws.String(name)})
	if err != nil {
		return "", fmt.Errorf("get SSM parameter %s: %w", name, err)
	}
	if out.Parameter == nil {
		return "", fmt.Errorf("get SSM parameter %s: empty answer", name)
	}
	value := aws.ToString(out.Parameter.Value)
	f.values.SetWithTTL(name, value, kept)
	return value, nil
}

func (f *Finder) describe(ctx context.Context, q query) ([]Image, error) {
	in := q.input
	in.Filters = append(slices.Clone(in.Filters), network.Filter("state", "available"))
	in.IncludeDeprecated = aws.Bool(true)
	in.MaxResults = aws.Int32(pageSize)
	var images []Image
	pages := ec2.NewDescribeImagesPaginator(f.images, &in)
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("describe images: %w", err)
		}
		for _, i := range page.Images {
			images = append(images, f.read(i, q.variants)...)
		}
	}
	return images, nil
}

// architectures maps EC2's names to those of the label kubernetes.io/arch.
var architectures = map[ec2types.ArchitectureValues]string{
	ec2types.ArchitectureValuesX8664: "amd64",
	ec2types.ArchitectureValuesArm64: "arm64",
}

// read returns the image once for each kind of hardware; none if no node can boot it.
func (f *Finder) read(i ec2types.Image, variants map[string][]variant) []Image {
	arch, ok := architectures[i.Architecture]
	if !ok {
		return nil
	}
	image := Image{
		ID:         aws.ToString(i.ImageId),
		Name:       aws.ToString(i.Name),
		CreatedAt:  parseTime(i.CreationDate),
		Deprecated: deprecated(i.DeprecationTime, f.now()),
	}
	kinds := variants[image.ID]
	if variants == nil {
		kinds = []variant{nil}
	}
	images := make([]Image, 0, len(kinds))
	for _, kind := range kinds {
		image.Requirements = append(slices.Clone(kind), equals(corev1.LabelArchStable, arch))
		slices.SortFunc(image.Requirements, func(a, b corev1.NodeSelectorRequirement) int {
			return cmp.Or(cmp.Compare(len(a.Key), len(b.Key)), cmp.Compare(a.Key, b.Key))
		})
		images = append(images, image)
	}
	return images
}

func parseTime(s *string) time.Time {
	t, err := time.Parse(time.RFC3339, aws.ToString(s))
	if err != nil {
		return time.Time{}
	}
	return t.Truncate(time.Second)
}

func deprecated(at *string, now time.Time) bool {
	t := parseTime(at)
	return !t.IsZero() && !t.After(now)
}

// Best keeps the best image for each set of requirements, newest first, then by ID. A live image is better than a
// deprecated one, then a newer one, then the greater name.
func Best(images []Image) []Image {
	best := map[string]Image{}
	for _, i := range images {
		key := fmt.Sprint(i.Requirements)
		if b, ok := best[key]; !ok || better(i, b) {
			best[key] = i
		}
	}
	out := make([]Image, 0, len(best))
	for _, i := range best {
		out = append(out, i)
	}
	slices.SortFunc(out, func(a, b Image) int {
		return cmp.Or(
			b.CreatedAt.Compare(a.CreatedAt),
			cmp.Compare(a.ID, b.ID),
			cmp.Compare(fmt.Sprint(a.Requirements), fmt.Sprint(b.Requirements)),
		)
	})
	return out
}

func better(a, b Image) bool {
	if a.Deprecated != b.Deprecated {
		return b.Deprecated
	}
	return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.Name, b.Name), cmp.Compare(b.ID, a.ID)) > 0
}
