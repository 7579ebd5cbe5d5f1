package main

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// What one push consumer has received, in the order in which its listener was called.
type inbox struct {
	lock     sync.Mutex
	messages []fields
	names    map[any]bool
}

// Numbers the calls of all listeners, so that those of two consumers can be put in order.
var turns atomic.Int64

func (i *inbox) add(ctx context.Context, messages []*primitive.MessageExt) {
	i.lock.Lock()
	defer i.lock.Unlock()
	call, _ := primitive.GetConsumerCtx(ctx)
	for _, described := range describeAll(messages) {
		described["broker"] = call.MQ.BrokerName
		described["receivedMs"] = time.Now().UnixMilli()
		described["turn"] = turns.Add(1)
		i.messages = append(i.messages, described)
		i.names[described["body"]] = true
	}
}

// Whether there are so many messages of different names, or with calls so many of any.
func (i *inbox) has(count int, calls bool) bool {
	i.lock.Lock()
	defer i.lock.Unlock()
	if calls {
		return len(i.messages) >= count
	}
	return len(i.names) >= count
}

var inboxes = map[string]*inbox{}

var fromWhere = map[string]consumer.ConsumeFromWhere{
	"FIRST_OFFSET": consumer.ConsumeFromFirstOffset,
	"LAST_OFFSET":  consumer.ConsumeFromLastOffset,
	"TIMESTAMP":    consumer.ConsumeFromTimestamp,
}

func consumerOptions(o options) []consumer.Option {
	chosen := []consumer.Option{
		consumer.WithGroupName(o.text("group", o.text("name", ""))),
		consumer.WithInstance(o.text("name", "")),
		consumer.WithCredentials(o.credentials()),
		consumer.WithNsResolver(primitive.NewPassthroughResolver(o.namesrv())),
		consumer.WithConsumeFromWhere(fromWhere[o.text("from", "FIRST_OFFSET")]),
		consumer.WithConsumerOrder(o.text("listener", "concurrently") == "orderly"),
		consumer.WithMaxReconsumeTimes(int32(o.number("maxTimes", -1))),
		consumer.WithSuspendCurrentQueueTimeMillis(time.Duration(o.number("suspendMs", 1000)) * time.Millisecond),
	}
	if when := o.text("time", ""); when != "" {
		chosen = append(chosen, consumer.WithConsumeTimestamp(when))
	}
	return chosen
}

func selector(o options) consumer.MessageSelector {
	if sql := o.text("sql", ""); sql != "" {
		return consumer.MessageSelector{Type: consumer.SQL92, Expression: sql}
	}
	return consumer.MessageSelector{Type: consumer.TAG, Expression: o.text("expression", "*")}
}

func startConsumer(o options) (any, error) {
	name := o.text("name", "")
	started, err := rocketmq.NewPushConsumer(consumerOptions(o)...)
	if err != nil {
		return nil, err
	}
	box := &inbox{names: map[any]bool{}}
	judge := newVerdicts(o)
	listener := func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		// Noted last: whoever sees the message may stop the consumer, which then has consumed it.
		result := judge.result(ctx, messages)
		box.add(ctx, messages)
		return result, nil
	}
	if err := started.Subscribe(o.text("topic", ""), selector(o), listener); err != nil {
		return nil, err
	}
	inboxes[name] = box
	stoppers[name] = started.Shutdown
	return true, started.Start()
}

func received(o options) (any, error) {
	box := inboxes[o.text("consumer", "")]
	deadline := time.Now().Add(time.Duration(o.number("timeoutMs", 30_000)) * time.Millisecond)
	for !box.has(o.number("count", 0), o.text("calls", "") == "true") && time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond)
	}
	box.lock.Lock()
	defer box.lock.Unlock()
	return append([]fields{}, box.messages...), nil
}

// Pull consumers, which this client fills in the background (poll) or asks at once (pull).
var pollers = map[string]rocketmq.PullConsumer{}

func startPoller(o options) (any, error) {
	name := o.text("name", "")
	started, err := rocketmq.NewPullConsumer(consumerOptions(o)...)
	if err != nil {
		return nil, err
	}
	if err := started.Subscribe(o.text("topic", ""), selector(o)); err != nil {
		return nil, err
	}
	pollers[name] = started
	stoppers[name] = started.Shutdown
	return true, started.Start()
}

func poll(o options) (any, error) {
	poller := pollers[o.text("consumer", "")]
	all := []fields{}
	deadline := time.Now().Add(time.Duration(o.number("timeoutMs", 30_000)) * time.Millisecond)
	for len(all) < o.number("count", 0) && time.Now().Before(deadline) {
		request, err := poller.Poll(context.Background(), 200*time.Millisecond)
		if consumer.IsNoNewMsgError(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, describeAll(request.GetMsgList())...)
		poller.ACK(context.Background(), request, consumer.ConsumeSuccess)
	}
	return all, nil
}

func pull(o options) (any, error) {
	queue := &primitive.MessageQueue{
		Topic: o.text("topic", ""), BrokerName: o.text("broker", ""), QueueId: o.number("queue", 0),
	}
	from, err := strconv.ParseInt(o.text("offset", "0"), 10, 64)
	if err != nil {
		return nil, err
	}
	result, err := pollers[o.text("consumer", "")].PullFrom(context.Background(), queue, from, o.number("max", 32))
	if err != nil {
		return nil, err
	}
	return fields{
		"status": pullStatus[result.Status], "next": result.NextBeginOffset, "min": result.MinOffset,
		"max": result.MaxOffset, "messages": describeAll(result.GetMessageExts()),
	}, nil
}

var pullStatus = map[primitive.PullStatus]string{
	primitive.PullFound:         "FOUND",
	primitive.PullNoNewMsg:      "NO_NEW_MSG",
	primitive.PullNoMsgMatched:  "NO_MATCHED_MSG",
	primitive.PullOffsetIllegal: "OFFSET_ILLEGAL",
	primitive.PullBrokerTimeout: "BROKER_TIMEOUT",
}
