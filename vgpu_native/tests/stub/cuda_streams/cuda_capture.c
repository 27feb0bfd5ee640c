/* Capture: between its begin and its end a stream executes nothing; its work is added to a graph. */
#include "cuda_stub.h"

#include <stdlib.h>

static _Atomic int global_captures;  /* that forbid unsafe calls to all threads */
static _Thread_local int own_captures; /* that this thread began and that forbid them to it */
static _Thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
static _Thread_local struct stub_capture *last_own;
static _Atomic uint64_t captures_made;

bool stub_capturing(CUstream stream)
{
  return stream->capture && stream->capture->open;
}

CUgraph stub_capture_graph(CUstream stream)
{
  return stream->capture->graph;
}

bool stub_capture_forbids(void)
{
  bool mine = own_captures > 0, all = global_captures > 0;
  bool forbids = (thread_mode != CU_STREAM_CAPTURE_MODE_RELAXED && mine) ||
                 (thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL && all);
  if (forbids && mine && last_own) last_own->broken = true;
  return forbids;
}

CUresult stub_cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
  if (!mode || *mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  CUstreamCaptureMode before = thread_mode;
  thread_mode = *mode;
  *mode = before;
  return CUDA_SUCCESS;
}

static CUresult begin(CUstream handle, CUstreamCaptureMode mode, CUgraph graph)
{
  CUstream stream = stub_stream(handle);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  if (stub_capturing(stream)) return CUDA_ERROR_ILLEGAL_STATE;
  if (stream == stream->context->legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  struct stub_capture *made = malloc(sizeof *made);
  if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
  *made = (struct stub_capture){graph ? graph : stub_graph_make(), true, false, mode, ++captures_made};
  stream->capture = made;
  if (mode == CU_STREAM_CAPTURE_MODE_GLOBAL) global_captures++;
  if (mode != CU_STREAM_CAPTURE_MODE_RELAXED) {
    own_captures++;
    last_own = made;
  }
  return CUDA_SUCCESS;
}

CUresult stub_cuStreamBeginCapture(CUstream stream)
{
  return begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL, NULL);
}

CUresult stub_cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
  return begin(stream, mode, NULL);
}

CUresult stub_cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *after,
                                          const CUgraphEdgeData *edges, size_t count, CUstreamCaptureMode mode)
{
  (void)after, (void)edges, (void)count;
  return graph ? begin(stream, mode, graph) : CUDA_ERROR_INVALID_VALUE;
}

CUresult stub_cuStreamEndCapture(CUstream handle, CUgraph *graph)
{
  CUstream stream = stub_stream(handle);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  if (!stub_capturing(stream)) return CUDA_ERROR_ILLEGAL_STATE;
  struct stub_capture *capture = stream->capture;
  capture->open = false;
  if (capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL) global_captures--;
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED) own_captures--;
  if (graph) *graph = capture->broken ? NULL : capture->graph;
  return capture->broken ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

CUresult stub_cuStreamGetCaptureInfo_v3(CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id,
                                        CUgraph *graph, const CUgraphNode **nodes,
                                        const CUgraphEdgeData **edges, size_t *count)
{
  CUstream stream = stub_stream(handle);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  if (!status) return CUDA_ERROR_INVALID_VALUE;
  bool open = stub_capturing(stream);
  *status = !open                     ? CU_STREAM_CAPTURE_STATUS_NONE
            : stream->capture->broken ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                      : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  if (open && id) *id = stream->capture->id;
  if (open && graph) *graph = stream->capture->graph;
  if (nodes) *nodes = NULL;
  if (edges) *edges = NULL;
  if (count) *count = 0;
  return CUDA_SUCCESS;
}

CUresult stub_cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
                                        CUgraph *graph, const CUgraphNode **nodes, size_t *count)
{
  return stub_cuStreamGetCaptureInfo_v3(stream, status, id, graph, nodes, NULL, count);
}

CUresult stub_cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id)
{
  return stub_cuStreamGetCaptureInfo_v3(stream, status, id, NULL, NULL, NULL, NULL);
}

CUresult stub_cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
  return stub_cuStreamGetCaptureInfo_v3(stream, status, NULL, NULL, NULL, NULL, NULL);
}
