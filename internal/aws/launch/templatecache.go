package launch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"golang.org/x/sync/singleflight"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/awserrors"
	"github.com/dovetail-k8s/dovetail/internal/aws/identity"
	"github.com/dovetail-k8s/dovetail/internal/aws/network"
	"github.com/dovetail-k8s/dovetail/internal/aws/ttlcache"
)

// TemplateAPI is the calls of EC2 that Templates makes.
type TemplateAPI interface {
	ec2.DescribeLaunchTemplatesAPIClient
	CreateLaunchTemplate(
		ctx context.Context,
		in *ec2.CreateLaunchTemplateInput,
		optFns ...func(*ec2.Options),
	) (*ec2.CreateLaunchTemplateOutput, error)
	DeleteLaunchTemplate(
		ctx context.Context,
		in *ec2.DeleteLaunchTemplateInput,
		optFns ...func(*ec2.Options),
	) (*ec2.DeleteLaunchTemplateOutput, error)
}

// templateTTL sets how long a template is assumed to exist after its last use. A template that somebody deletes meanwhile
// costs one failed call.
const templateTTL = 5 * time.Minute

// Templates manages the launch templates of one cluster.
type Templates struct {
	api      TemplateAPI
	identity identity.Identity
	known    *ttlcache.Cache[string, struct{}]
	creating singleflight.Group
}

// NewTemplates returns Templates with an empty cache.
func NewTemplates(api TemplateAPI, id identity.Identity, now func() time.Time) *Templates {
	return &Templates{api: api, identity: id, known: ttlcache.New[string, struct{}](templateTTL, now)}
}

// Ensure creates the template unless it exists. One that exists and is not ours is identity.ErrNotOurs. Concurrent launches share the
// calls, and two processes that create the same template both succeed.
func (t *Templates) Ensure(ctx context.Context, in *ec2.CreateLaunchTemplateInput) (name string, err error) {
	name = aws.ToString(in.LaunchTemplateName)
	if _, ok := t.known.Get(name); !ok {
		if _, err, _ := t.creating.Do(name, func() (any, error) { return nil, t.create(ctx, in) }); err != nil {
			return "", fmt.Errorf("ensure launch template %s: %w", name, err)
		}
	}
	t.known.Set(name, struct{}{})
	return name, nil
}

// create creates the template, and accepts one that exists. It does not look for it first: the name has a hash of everything in it,
// and EC2 may fail to describe while it launches.
func (t *Templates) create(ctx context.Context, in *ec2.CreateLaunchTemplateInput) error {
	_, err := t.api.CreateLaunchTemplate(ctx, in)
	switch name := aws.ToString(in.LaunchTemplateName); {
	case awserrors.Is(err, awserrors.AlreadyExists):
		return t.verify(ctx, name)
	case err != nil && awserrors.IsRetryable(err) && t.exists(ctx, name):
		return nil
	}
	return err
}

// exists reports whether a template certainly exists, and is ours: an earlier process has created it. So a restart launches while EC2
// creates no templates.
func (t *Templates) exists(ctx context.Context, name string) bool {
	limited, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	out, err := t.api.DescribeLaunchTemplates(limited, &ec2.DescribeLaunchTemplatesInput{LaunchTemplateNames: []string{name}})
	return err == nil && len(out.LaunchTemplates) > 0 && t.proveAll(out.LaunchTemplates) == nil
}

// proveAll returns identity.ErrNotOurs if one of the templates is not ours.
func (t *Templates) proveAll(templates []ec2types.LaunchTemplate) error {
	for _, template := range templates {
		if _, err := t.identity.Prove(identity.LaunchTemplate, aws.ToString(template.LaunchTemplateId), tagsOf(template)); err != nil {
			return err
		}
	}
	return nil
}

// verifyTimeout sets how long a launch waits for the proof that an existing template is ours. EC2 describes one in 100 ms.
const verifyTimeout = 5 * time.Second

// verify checks that an existing template has our identity. While EC2 does not answer, the name is trusted: it has a hash of our
// identity, too.
func (t *Templates) verify(ctx context.Context, name string) error {
	limited, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	out, err := t.api.DescribeLaunchTemplates(limited, &ec2.DescribeLaunchTemplatesInput{LaunchTemplateNames: []string{name}})
	switch {
	case err != nil && ctx.Err() == nil && (awserrors.IsRetryable(err) || limited.Err() != nil):
		return nil
	case err != nil:
		return err
	}
	return t.proveAll(out.LaunchTemplates)
}

// Forget removes a template from the cache, so that the next Ensure reads it again.
func (t *Templates) Forget(name string) { t.known.Delete(name) }

// DeleteAll deletes our templates of a node class. A template that no longer exists is no error.
func (t *Templates) DeleteAll(ctx context.Context, nodeClass string) error {
	templates, err := t.list(ctx, network.Filter("tag:"+awsv1.TagNodeClass, nodeClass))
	if err != nil {
		return err
	}
	var errs []error
	for _, template := range templates {
		errs = append(errs, t.remove(ctx, template))
	}
	return errors.Join(errs...)
}

// CollectGarbage deletes our unused templates: those created before cutoff that this process has not used lately.
func (t *Templates) CollectGarbage(ctx context.Context, cutoff time.Time) error {
	templates, err := t.list(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, template := range templates {
		_, used := t.known.Get(aws.ToString(template.LaunchTemplateName))
		if !used && aws.ToTime(template.CreateTime).Before(cutoff) {
			errs = append(errs, t.remove(ctx, template))
		}
	}
	return errors.Join(errs...)
}

// list returns the templates with our identity.
func (t *Templates) list(ctx context.Context, more ...ec2types.Filter) ([]ec2types.LaunchTemplate, error) {
	filters := append([]ec2types.Filter{network.Filter("tag:"+awsv1.TagClusterUID, t.identity.ClusterUID)}, more...)
	pages := ec2.NewDescribeLaunchTemplatesPaginator(
		t.api,
		&ec2.DescribeLaunchTemplatesInput{Filters: filters, MaxResults: aws.Int32(200)},
	)
	var out []ec2types.LaunchTemplate
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("list launch templates: %w", err)
		}
		out = append(out, page.LaunchTemplates...)
	}
	return out, nil
}

// remove deletes a template after it has verified our identity in its tags, independent of the filter.
func (t *Templates) remove(ctx context.Context, template ec2types.LaunchTemplate) error {
	owned, err := t.identity.Prove(identity.LaunchTemplate, aws.ToString(template.LaunchTemplateId), tagsOf(template))
	if err != nil {
		return fmt.Errorf("delete launch template %s: %w", aws.ToString(template.LaunchTemplateName), err)
	}
	t.known.Delete(aws.ToString(template.LaunchTemplateName))
	return t.delete(ctx, owned)
}

func tagsOf(template ec2types.LaunchTemplate) map[string]string {
	tags := make(map[string]string, len(template.Tags))
	for _, tag := range template.Tags {
		tags[aws.ToString(tag.Key)] = aws.ToString(tag.Value)
	}
	return tags
}

func (t *Templates) delete(ctx context.Context, owned identity.Owned) error {
	id, err := owned.ID(identity.LaunchTemplate)
	if err != nil {
		return err
	}
	_, err = t.api.DeleteLaunchTemplate(ctx, &ec2.DeleteLaunchTemplateInput{LaunchTemplateId: aws.String(id)})
	if err != nil && !awserrors.Is(err, awserrors.NotFound) {
		return fmt.Errorf("delete launch template %s: %w", id, err)
	}
	return nil
}
